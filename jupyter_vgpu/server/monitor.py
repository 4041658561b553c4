"""The Jupyter server's one connection to the arbiter: its latest snapshot, its events, and what to show where there is no arbiter."""

from __future__ import annotations

import asyncio
import contextlib
import os
import time
from collections.abc import Callable, Mapping
from logging import Logger
from typing import Any, Optional

from jupyter_vgpu.arbiter.api import EventView, LeaseView, PolicyView
from jupyter_vgpu.arbiter.client import ArbiterUnavailable, AsyncArbiterClient
from jupyter_vgpu.devices import choose
from jupyter_vgpu.native import locate
from jupyter_vgpu.pool.model import InvalidValue
from jupyter_vgpu.pool.policy import Policy

RETRY_FIRST = 0.25
RETRY_LONGEST = 30.0
REFRESH_PAUSE = 0.5
"""Seconds between two snapshots that events cause: a burst of events is one look."""

PoolSnapshot = dict[str, Any]
"""A `Pool` of openapi.yaml; its `arbiter` is null where no arbiter runs."""

Connect = Callable[[Mapping[str, str]], Any]
"""`AsyncArbiterClient.start`, or a test's."""


def retry_delay(attempt: int) -> float:
    """Seconds to wait before connecting again; `attempt` counts failures since an arbiter last answered, from 0."""
    return min(RETRY_FIRST * 2.0 ** min(attempt, 16), RETRY_LONGEST)


class PoolMonitor:
    """Made by the extension for the server's life: `start`, then `stop`. Without devices, or behind a gateway, it does nothing but say so.

    `on_event` are called with each of the arbiter's events, `on_snapshot` with the leases of each snapshot; both in the server's loop.
    """

    def __init__(
        self,
        *,
        log: Logger,
        environ: Mapping[str, str] = os.environ,
        passive: Optional[str] = None,
        connect: Connect = AsyncArbiterClient.start,
    ):
        self.on_event: list[Callable[[EventView], None]] = []
        self.on_snapshot: list[Callable[[list[LeaseView]], None]] = []
        self.snapshot: Optional[PoolSnapshot] = None
        """The last one that the arbiter gave; None while there is no connection."""
        self._log = log
        self._environ = environ
        self._connect = connect
        self._client: Optional[AsyncArbiterClient] = None
        self._simulated = passive is None and self._means_simulated()
        self._idle_reason = passive or self._nothing_to_manage()
        self._reason = self._idle_reason or "the GPU arbiter is starting"
        self._failures = 0
        self._wanted = asyncio.Event()
        self._tasks: list[asyncio.Task] = []

    def start(self) -> None:
        if self._idle_reason is None:
            self._tasks = [asyncio.create_task(self._stay_connected()), asyncio.create_task(self._refresh_when_wanted())]
        else:
            self._log.info("jupyter-vgpu: %s", self._idle_reason)

    async def stop(self) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.gather(*self._tasks, return_exceptions=True)
        self._tasks.clear()

    @property
    def connected(self) -> bool:
        return self._client is not None

    @property
    def client(self) -> AsyncArbiterClient:
        """The connected client. Raises `ArbiterUnavailable`, for a person, where there is none."""
        if self._client is None:
            raise ArbiterUnavailable(self._reason)
        return self._client

    async def pool(self) -> PoolSnapshot:
        """The whole pool now; without an arbiter an empty one whose message says why. Raises nothing."""
        try:
            return await self.refresh()
        except ArbiterUnavailable as error:
            return {
                "arbiter": None,
                "time": time.time(),
                "simulated": self._simulated,
                "message": str(error),
                "devices": [],
                "leases": [],
                "queue": [],
                "policy": self._default_policy(),
            }

    async def leases(self, kernel_id: Optional[str]) -> list[LeaseView]:
        """The leases, all or a kernel's; none without an arbiter."""
        try:
            return await self.client.leases(kernel_id)
        except ArbiterUnavailable:
            return []

    async def policy(self) -> PolicyView:
        """The policy in force; without an arbiter the built-in default."""
        try:
            return await self.client.policy()
        except ArbiterUnavailable:
            return self._default_policy()

    async def refresh(self) -> PoolSnapshot:
        """Takes a snapshot and tells `on_snapshot`. Raises `ArbiterUnavailable`."""
        self.snapshot = snapshot = dict(await self.client.pool())
        self._tell(self.on_snapshot, snapshot["leases"])
        return snapshot

    def want_refresh(self) -> None:
        """Asks for a snapshot soon. Called where something changed that the arbiter's events do not tell."""
        self._wanted.set()

    def _nothing_to_manage(self) -> Optional[str]:
        try:
            if choose(self._environ) is None:
                return "no GPU was found on this machine; kernels run without one (VGPU_SIMULATED=2x16GiB gives simulated ones)"
        except InvalidValue as error:
            return str(error)
        return locate.unavailable_reason()

    def _means_simulated(self) -> bool:
        """Known before an arbiter answers, so that the panel never shows a real pool that turns into a simulated one."""
        try:
            return choose(self._environ) == "simulated"
        except InvalidValue:
            return False

    @staticmethod
    def _default_policy() -> PolicyView:
        return {"source": None, "revision": 0, "error": None, "policy": Policy().model_dump(mode="json")}

    async def _stay_connected(self) -> None:
        while True:
            try:
                client = await self._connect(self._environ)
                try:
                    async with contextlib.aclosing(client.events(subscribed=lambda client=client: self._subscribed(client))) as events:
                        async for event in events:
                            self._tell(self.on_event, event)
                            self._wanted.set()
                finally:
                    self._client = self.snapshot = None
                    client.close()
            except (ArbiterUnavailable, InvalidValue) as error:
                if self._reason != str(error):
                    self._log.warning("jupyter-vgpu: %s", error)
                self._reason = str(error)
            await asyncio.sleep(retry_delay(self._failures))
            self._failures += 1

    def _subscribed(self, client: AsyncArbiterClient) -> None:
        """No event is missed from here on, so a snapshot taken now has no gap to what follows."""
        self._client = client
        self._failures = 0
        self._reason = ""
        self._wanted.set()

    async def _refresh_when_wanted(self) -> None:
        while True:
            await self._wanted.wait()
            self._wanted.clear()
            with contextlib.suppress(ArbiterUnavailable, InvalidValue):
                await self.refresh()
            await asyncio.sleep(REFRESH_PAUSE)

    def _tell(self, listeners: list, value: Any) -> None:
        """One listener's failure is not the others', nor the connection's."""
        for listener in listeners:
            try:
                listener(value)
            except Exception:
                self._log.exception("jupyter-vgpu: a listener to the pool failed")
