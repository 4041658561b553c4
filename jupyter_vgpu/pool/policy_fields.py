"""The kinds of values in a policy: how each is read, written back and described in the JSON Schema. Used by `policy` alone.

Each reads what it has written: a policy shown by the API can be loaded again.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BeforeValidator, PlainSerializer, WithJsonSchema

from .model import COMPUTE_MAXIMUM, COMPUTE_MINIMUM, InvalidValue
from .units import DURATION_PATTERN, FRACTION_PATTERN, SIZE_PATTERN, Amount, format_exact, parse_amount, parse_duration, parse_fraction

MEMORY_MINIMUM = 1024**2
"""Bytes; the smallest limit that can be written down. What a CUDA context needs is larger and is measured, see `admission`."""

OVERSUBSCRIPTION_MAXIMUM = 100.0

_DEVICE_PATTERN = r"^(GPU|MIG)-[0-9A-Za-z/-]+$"
_DEVICE_PREFIXES = ("GPU-", "MIG-")
_DEVICES_ALLOWED = "all, or a list of device indexes (0, 1, ...) and UUIDs (GPU-..., MIG-...), each once"


def _is_integer(value: Any) -> bool:
    return isinstance(value, int) and not isinstance(value, bool)


def _limit(value: Any) -> Amount:
    amount = parse_amount(value, field="memory")
    if amount.bytes is not None and amount.bytes < MEMORY_MINIMUM:
        raise InvalidValue(field="memory", value=value, allowed=f"at least {format_exact(MEMORY_MINIMUM)}, or a fraction of a device")
    return amount


def _reserve(value: Any) -> Amount:
    amount = parse_amount(value, field="memory_guarantee")
    return _limit(value) if amount.bytes else amount


def _duration(value: Any) -> float:
    return parse_duration(value, field="duration")


def _optional_duration(value: Any) -> float | None:
    return None if value is None or value == "never" else _duration(value)


def _fraction(value: Any) -> float:
    return parse_fraction(value, field="fraction")


def _factor(value: Any) -> float:
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1 <= value <= OVERSUBSCRIPTION_MAXIMUM:
        allowed = f"a number from 1.0 to {OVERSUBSCRIPTION_MAXIMUM}, or null for no bound"
        raise InvalidValue(field="oversubscription", value=value, allowed=allowed)
    return float(value)


def _count(value: Any) -> int | str:
    if value == "all" or (_is_integer(value) and value >= 1):
        return value
    raise InvalidValue(field="devices", value=value, allowed="a number of devices, 1 or more, or all")


def _device_list(value: Any) -> Any:
    if value == "all":
        return value
    if not isinstance(value, (list, tuple)) or not value:
        raise InvalidValue(field="devices", value=value, allowed=_DEVICES_ALLOWED)
    for position, entry in enumerate(value):
        is_device = _is_integer(entry) and entry >= 0 or isinstance(entry, str) and entry.startswith(_DEVICE_PREFIXES)
        if not is_device or entry in value[:position]:
            raise InvalidValue(field="devices", value=entry, allowed=_DEVICES_ALLOWED)
    return tuple(value)


def _amount_schema(minimum: int) -> dict[str, Any]:
    fraction = {"type": "number", "minimum": COMPUTE_MINIMUM, "maximum": COMPUTE_MAXIMUM}
    texts = [{"type": "string", "pattern": SIZE_PATTERN}, {"type": "string", "pattern": FRACTION_PATTERN}]
    return {"anyOf": [*texts, {"type": "integer", "minimum": minimum}, fraction]}


_FRACTION_SCHEMA = {
    "anyOf": [
        {"type": "number", "minimum": COMPUTE_MINIMUM, "maximum": COMPUTE_MAXIMUM},
        {"type": "string", "pattern": FRACTION_PATTERN},
    ]
}
_DURATION_SCHEMA = [{"type": "number", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]
_LIST_SCHEMA = {
    "type": "array",
    "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": _DEVICE_PATTERN}]},
    "minItems": 1,
    "uniqueItems": True,
}

_as_text = PlainSerializer(str, return_type=str)

Limit = Annotated[Amount, BeforeValidator(_limit), _as_text, WithJsonSchema(_amount_schema(MEMORY_MINIMUM))]
Reserve = Annotated[Amount, BeforeValidator(_reserve), _as_text, WithJsonSchema(_amount_schema(0))]
Fraction = Annotated[float, BeforeValidator(_fraction), WithJsonSchema(_FRACTION_SCHEMA)]
Duration = Annotated[float, BeforeValidator(_duration), WithJsonSchema({"anyOf": _DURATION_SCHEMA})]
OptionalDuration = Annotated[
    float | None,
    BeforeValidator(_optional_duration),
    WithJsonSchema({"anyOf": [*_DURATION_SCHEMA, {"const": "never"}, {"type": "null"}]}),
]
Factor = Annotated[float, BeforeValidator(_factor), WithJsonSchema({"type": "number", "minimum": 1, "maximum": OVERSUBSCRIPTION_MAXIMUM})]
Count = Annotated[
    int | str,
    BeforeValidator(_count),
    WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]}),
]
DeviceList = Annotated[
    Literal["all"] | tuple[int | str, ...],
    BeforeValidator(_device_list),
    WithJsonSchema({"anyOf": [{"const": "all"}, _LIST_SCHEMA]}),
]
