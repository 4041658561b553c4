"""Who listens to what happens in the pool."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from jupyter_vgpu.arbiter.api import EventView

QUEUE_LENGTH = 1000


class Subscriber:
    """One open stream. `next` gives events in order, and None when the stream must end."""

    def __init__(self) -> None:
        self._queue: asyncio.Queue[EventView | None] = asyncio.Queue(maxsize=QUEUE_LENGTH)
        self.lost = False

    async def next(self) -> EventView | None:
        return None if self.lost else await self._queue.get()

    def offer(self, event: EventView | None) -> None:
        """A listener that is too slow is cut off rather than given a history with holes: it subscribes again and takes a snapshot."""
        try:
            self._queue.put_nowait(event)
        except asyncio.QueueFull:
            self.lost = True


class Events:
    def __init__(self, clock: Callable[[], float]):
        self._clock = clock
        self._subscribers: set[Subscriber] = set()

    def subscribe(self) -> Subscriber:
        subscriber = Subscriber()
        self._subscribers.add(subscriber)
        return subscriber

    def unsubscribe(self, subscriber: Subscriber) -> None:
        self._subscribers.discard(subscriber)

    def emit(self, event: EventView) -> None:
        event.setdefault("time", self._clock())
        for subscriber in self._subscribers:
            subscriber.offer(event)

    def close(self) -> None:
        """Ends all streams."""
        for subscriber in self._subscribers:
            subscriber.offer(None)

    def __len__(self) -> int:
        return len(self._subscribers)
