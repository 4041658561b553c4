"""Who is idle: a pure rule over what was reported and what the control page counts, with an explicit clock."""

from __future__ import annotations

from dataclasses import dataclass

LAUNCH_RECENT = 5.0
"""Seconds after the last observed launch during which a tenant counts as active: background threads outlive their cells."""


@dataclass
class Activity:
    """The activity of one tenant. Times in seconds since the epoch; `since` is when it was last seen active."""

    since: float
    open_cells: int | None = None
    """None until somebody reports: then only the launches speak (a command that no Jupyter server watches)."""
    launches: int = 0
    launched: float | None = None

    def report(self, open_cells: int, *, now: float) -> None:
        """What the Jupyter server observed. The idle clock starts when the last open cell closes, not at every report of none."""
        if self.open_cells or open_cells:
            self.since = now
        self.open_cells = open_cells

    def observe_launches(self, launches: int, *, now: float) -> None:
        """The sum of the launch counters of the tenant's processes; it falls when one of them ends, which is no work."""
        if launches > self.launches:
            self.launched = now
        self.launches = launches

    def idle_since(self, *, now: float) -> float | None:
        """Since when the tenant has been idle; None while it is active."""
        if self.open_cells or (self.launched is not None and now - self.launched < LAUNCH_RECENT):
            return None
        return max(self.since, self.launched or self.since)
