"""Sizes, fractions and durations as people write them.

Used at every edge where a person's value comes in: requests, the policy file, ``VGPU_SIMULATED``. A wrong value is an
`InvalidValue` that names the field, the value and what is allowed; nothing here guesses.
"""

from __future__ import annotations

import math
import re
from dataclasses import dataclass
from decimal import Decimal
from typing import Any

from .model import COMPUTE_MAXIMUM, COMPUTE_MINIMUM, InvalidValue

SIZE_MAXIMUM = 2**63 - 1

SIZE_ALLOWED = "a number of bytes or a size such as 512MiB, 8GiB or 8GB"
FRACTION_ALLOWED = f"a fraction from {COMPUTE_MINIMUM} to {COMPUTE_MAXIMUM}, such as 0.25 or 25%"
AMOUNT_ALLOWED = f"{SIZE_ALLOWED}, or a fraction of a device from {COMPUTE_MINIMUM} to {COMPUTE_MAXIMUM}, such as 0.25 or 25%"
DURATION_ALLOWED = "a number of seconds or a duration such as 90s, 10m, 2h or 1d"

# A bare letter means the binary unit, as in Slurm and Docker; "GB" is decimal, as in SI.
_UNITS = {"": 1, "b": 1}
for _power, _letter in enumerate("kmgt", start=1):
    _UNITS[_letter] = _UNITS[_letter + "i"] = _UNITS[_letter + "ib"] = 1024**_power
    _UNITS[_letter + "b"] = 1000**_power
_SECONDS = {"": 1, "s": 1, "m": 60, "h": 3600, "d": 86400}

SIZE_PATTERN = r"^\s*[0-9]{1,20}(\.[0-9]{1,20})?\s*([KkMmGgTt]([Ii]?[Bb]|[Ii])?|[Bb])?\s*$"
FRACTION_PATTERN = r"^\s*((100(\.0{1,20})?|[0-9]{1,2}(\.[0-9]{1,20})?)\s*%|0\.[0-9]{1,20}|1\.0{1,20})\s*$"
DURATION_PATTERN = r"^\s*[0-9]{1,20}(\.[0-9]{1,20})?\s*[smhd]?\s*$"

_NUMBER_AND_UNIT = re.compile(r"\s*([0-9]{1,20}(?:\.[0-9]{1,20})?)\s*([a-z]{0,3}|%)\s*", re.IGNORECASE | re.ASCII)


def _number_and_unit(text: str) -> tuple[Decimal, str] | None:
    match = _NUMBER_AND_UNIT.fullmatch(text)
    return (Decimal(match[1]), match[2].lower()) if match else None


def parse_size(value: Any, *, field: str) -> int:
    """Bytes of a size: an integer is bytes, a string has a unit (``8GiB``, ``1.5 G``, ``8GB``; a bare number is bytes).

    Raises `InvalidValue` for anything else, negative sizes and sizes over 2**63 - 1 included.
    """
    if isinstance(value, int) and not isinstance(value, bool):
        size = value
    elif isinstance(value, str) and (parsed := _number_and_unit(value)) and parsed[1] in _UNITS:
        size = int(parsed[0] * _UNITS[parsed[1]])
        if not parsed[1] and parsed[0] != size:
            raise InvalidValue(field=field, value=value, allowed=SIZE_ALLOWED)
    else:
        raise InvalidValue(field=field, value=value, allowed=SIZE_ALLOWED)
    if not 0 <= size <= SIZE_MAXIMUM:
        raise InvalidValue(field=field, value=value, allowed=SIZE_ALLOWED)
    return size


def parse_fraction(value: Any, *, field: str) -> float:
    """A fraction of one device, 0.01 to 1.0: a number, or a string such as ``0.25`` or ``25%``. Raises `InvalidValue`."""
    fraction = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        # Compared before the conversion: an integer of 400 digits has no float.
        fraction = float(value) if 0 <= value <= 1 else math.nan
    elif isinstance(value, str) and (parsed := _number_and_unit(value)) and parsed[1] in ("", "%"):
        fraction = float(parsed[0] / 100 if parsed[1] else parsed[0])
    if not COMPUTE_MINIMUM <= fraction <= COMPUTE_MAXIMUM:  # false for NaN too
        raise InvalidValue(field=field, value=value, allowed=FRACTION_ALLOWED)
    return fraction


def parse_duration(value: Any, *, field: str) -> float:
    """Seconds, 0 or more: a number, or a string such as ``90s``, ``10m``, ``2h``, ``1d``. Raises `InvalidValue`."""
    seconds = math.nan
    if isinstance(value, (int, float)) and not isinstance(value, bool):
        seconds = float(value) if 0 <= value <= SIZE_MAXIMUM else math.nan
    elif isinstance(value, str) and (parsed := _number_and_unit(value)) and parsed[1] in _SECONDS:
        seconds = float(parsed[0] * _SECONDS[parsed[1]])
    if not 0 <= seconds <= SIZE_MAXIMUM:
        raise InvalidValue(field=field, value=value, allowed=DURATION_ALLOWED)
    return seconds


def format_size(value: int) -> str:
    """A size for a person: the largest binary unit, two decimals at most ("8 GiB", "512 MiB", "1.5 GiB")."""
    for power, unit in ((4, "TiB"), (3, "GiB"), (2, "MiB"), (1, "KiB")):
        if abs(value) >= 1024**power:
            return f"{value / 1024**power:.2f}".rstrip("0").rstrip(".") + f" {unit}"
    return f"{value} B"


def _means(text: str, size: int) -> bool:
    number, unit = _number_and_unit(text) or (None, "")
    return number is not None and number * _UNITS[unit] == size


def format_exact(value: int) -> str:
    """As `format_size`, with the bytes behind it where the rounded figure is not the value: a bound must work when typed in."""
    text = format_size(value)
    return text if _means(text, value) else f"{text} ({value} bytes)"


def format_fraction(value: float) -> str:
    """A fraction as a percentage that parses back to the same float ("25%", "33.3%")."""
    return f"{(Decimal(repr(value)) * 100).normalize():f}%"


@dataclass(frozen=True)
class Amount:
    """Memory as the policy gives it: bytes, or a fraction of a device. Exactly one of the two is set."""

    bytes: int | None = None
    fraction: float | None = None

    def of(self, total: int) -> int:
        """Bytes of it on a device of `total` bytes; a size is what it is, even above `total`."""
        return self.bytes if self.bytes is not None else int(total * self.fraction)

    def __str__(self) -> str:
        """What `parse_amount` reads back as an equal value."""
        if self.fraction is not None:
            return format_fraction(self.fraction)
        text = format_size(self.bytes)
        return text if _means(text, self.bytes) else f"{self.bytes} B"


def parse_amount(value: Any, *, field: str) -> Amount:
    """A size (``8GiB``, integer bytes) or a fraction of a device (``0.25``, ``"25%"``, ``1.0``). Raises `InvalidValue`.

    1 is the whole device, as 1.0 is: JSON does not tell them apart, and nobody means one byte. Larger integers are bytes.
    """
    if isinstance(value, Amount):
        return value
    is_fraction = isinstance(value, float) or (value == 1 and not isinstance(value, bool))
    if isinstance(value, str) and (parsed := _number_and_unit(value)):
        is_fraction = parsed[1] == "%" or (not parsed[1] and "." in value)
    try:
        if is_fraction:
            return Amount(fraction=parse_fraction(value, field=field))
        return Amount(bytes=parse_size(value, field=field))
    except InvalidValue:
        raise InvalidValue(field=field, value=value, allowed=AMOUNT_ALLOWED) from None
