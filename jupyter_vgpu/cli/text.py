"""Plain text for a terminal."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Optional


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """Left-aligned columns under `header`, two blanks between them."""
    widths = [max(len(row[column]) for row in [header, *rows]) for column in range(len(header))]
    return "\n".join("  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip() for row in [header, *rows])


def percent(fraction: Optional[float]) -> str:
    """A fraction of a device for a person: "25%"; "-" for None."""
    return "-" if fraction is None else f"{round(fraction * 100, 2):g}%"


def number_or_text(value: str) -> object:
    """A float where `value` is one, else `value` as it came: the arbiter reports a wrong value in the user's own words."""
    try:
        return float(value)
    except ValueError:
        return value
