"""The pool's policy: what an administrator may decide, and what holds when nobody decided anything.

`Policy()` is the harmless default: nothing gets worse for anybody. `docs/policy.md` explains every key to administrators;
`jupyter_vgpu/policy.schema.json` is the published JSON Schema (`policy_schema`), held equal to these models by a test.
Reading a file's text is `policy_text.py`'s work.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, BeforeValidator, ConfigDict, Field, PlainSerializer, WithJsonSchema, model_validator

from .model import COMPUTE_MAXIMUM, COMPUTE_MINIMUM, PRIORITIES, Device, InvalidValue, Priority
from .units import DECIMAL_PATTERN, DURATION_PATTERN, PERCENT_PATTERN, SIZE_PATTERN, Amount, format_exact, parse_amount, parse_duration, parse_fraction

MEMORY_MINIMUM = 1024**2
"""Bytes; the smallest limit that can be written down. What a CUDA context needs is larger and is measured, see `admission`."""

CLASS_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
DEVICE_PATTERN = r"^(GPU|MIG)-[0-9A-Za-z/-]+$"
OVERSUBSCRIPTION_MAXIMUM = 100.0


class BrokenRule(InvalidValue):
    """Two keys that contradict each other. `path` is the offending key's, relative to the model that checks the rule."""

    def __init__(self, *path: str, value: Any, allowed: str):
        super().__init__(field=".".join(path), value=value, allowed=allowed)
        self.path = path


def _limit(value: Any) -> Amount:
    amount = parse_amount(value, field="memory")
    if amount.bytes is not None and amount.bytes < MEMORY_MINIMUM:
        raise InvalidValue(field="memory", value=value, allowed=f"at least {format_exact(MEMORY_MINIMUM)}; the whole device is 1.0 or 100%")
    return amount


def _reserve(value: Any) -> Amount:
    # Unlike every other amount, "nothing" makes sense here.
    if isinstance(value, (int, float)) and not isinstance(value, bool) and value == 0:
        return Amount(bytes=0)
    return parse_amount(value, field="memory_guarantee")


def _duration(value: Any) -> float | None:
    return None if value == "never" else parse_duration(value, field="duration")


def _factor(value: Any) -> float:
    allowed = f"a number from 1.0 to {OVERSUBSCRIPTION_MAXIMUM}, or null for no bound"
    if isinstance(value, bool) or not isinstance(value, (int, float)) or not 1.0 <= value <= OVERSUBSCRIPTION_MAXIMUM:
        raise InvalidValue(field="oversubscription", value=value, allowed=allowed)
    return float(value)


def _count(value: Any) -> int | str:
    if value == "all" or (isinstance(value, int) and not isinstance(value, bool) and value >= 1):
        return value
    raise InvalidValue(field="devices", value=value, allowed="a number of devices, 1 or more, or all")


_FRACTION_SCHEMA = [
    {"type": "number", "minimum": COMPUTE_MINIMUM, "maximum": COMPUTE_MAXIMUM},
    {"type": "string", "pattern": PERCENT_PATTERN},
    {"type": "string", "pattern": DECIMAL_PATTERN},
]
_SIZE_SCHEMA = {"type": "string", "pattern": SIZE_PATTERN}
_DURATION_SCHEMA = [{"type": "number", "minimum": 0}, {"type": "string", "pattern": DURATION_PATTERN}]


def _amount_schema(minimum: int) -> dict[str, Any]:
    # A number up to 1 is a fraction, an integer from `minimum` on is bytes; "1" as bytes is refused because it is never meant.
    return {"anyOf": [_SIZE_SCHEMA, {"type": "integer", "minimum": minimum}, *_FRACTION_SCHEMA]}


Limit = Annotated[
    Amount, BeforeValidator(_limit), PlainSerializer(str, return_type=str), WithJsonSchema(_amount_schema(MEMORY_MINIMUM))
]
Reserve = Annotated[Amount, BeforeValidator(_reserve), PlainSerializer(str, return_type=str), WithJsonSchema(_amount_schema(0))]
Fraction = Annotated[
    float, BeforeValidator(lambda value: parse_fraction(value, field="compute")), WithJsonSchema({"anyOf": _FRACTION_SCHEMA})
]
Duration = Annotated[float, BeforeValidator(lambda value: parse_duration(value, field="duration")), WithJsonSchema({"anyOf": _DURATION_SCHEMA})]
OptionalDuration = Annotated[
    float | None,
    BeforeValidator(lambda value: None if value is None else _duration(value)),
    WithJsonSchema({"anyOf": [*_DURATION_SCHEMA, {"const": "never"}, {"type": "null"}]}),
]


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True, validate_default=False)


class TenantClass(_Strict):
    """A named template for leases. All memory and compute figures are per device."""

    description: str = ""
    """What a person choosing a class should know."""

    memory: Limit = Amount(fraction=1.0)
    """Limit: what CUDA calls the device's total memory. A size, or a fraction of the device."""

    memory_guarantee: Reserve = Amount(bytes=0)
    """Part of the limit that is never lent to others while the tenant holds a context."""

    compute: Fraction = 1.0
    """Share of the device's time under contention: a weight against the shares of the others."""

    compute_cap: Fraction | None = None
    """Hard ceiling of the device's time, also when nobody else wants it; null = none."""

    priority: Literal[PRIORITIES] = "interactive"
    """`interactive` goes before `batch` in the queue and at the device."""

    devices: Annotated[int | str, BeforeValidator(_count), WithJsonSchema({"anyOf": [{"type": "integer", "minimum": 1}, {"const": "all"}]})] = "all"
    """How many devices the tenant sees: a number, or all."""

    @model_validator(mode="after")
    def _guarantee_within_limit(self) -> TenantClass:
        if _larger(self.memory_guarantee, self.memory):
            raise BrokenRule("memory_guarantee", value=str(self.memory_guarantee), allowed=f"at most the class's memory, {self.memory}")
        return self


class Bounds(_Strict):
    """The most that one tenant may hold of each device, whatever its class or request says; null = no bound."""

    memory: Limit | None = None
    """Largest memory limit."""

    compute: Fraction | None = None
    """Largest share."""

    compute_cap: Fraction | None = None
    """Ceiling of device time that nobody can lift."""


class Policy(_Strict):
    """What the pool may hand out and to whom."""

    default_class: str | None = None
    """The class of a tenant that asked for none; null = the whole device, no guarantee, equal shares, all devices."""

    classes: dict[Annotated[str, Field(pattern=CLASS_NAME_PATTERN)], TenantClass] = Field(default_factory=dict)
    """Classes by name."""

    bounds: Bounds = Bounds()
    """The most that one tenant may hold of each device."""

    devices: Annotated[
        Literal["all"] | tuple[int | str, ...],
        BeforeValidator(lambda value: _devices(value)),
        WithJsonSchema(
            {
                "anyOf": [
                    {"const": "all"},
                    {
                        "type": "array",
                        "items": {"anyOf": [{"type": "integer", "minimum": 0}, {"type": "string", "pattern": DEVICE_PATTERN}]},
                        "minItems": 1,
                        "uniqueItems": True,
                    },
                ]
            }
        ),
    ] = "all"
    """Which of the machine's devices the pool uses: all, or a list of indexes and UUIDs."""

    device_memory: Limit = Amount(fraction=1.0)
    """How much of each device the pool hands out; the rest is left to programs that are no tenants."""

    oversubscription: Annotated[
        float | None,
        BeforeValidator(lambda value: None if value is None else _factor(value)),
        WithJsonSchema({"anyOf": [{"type": "number", "minimum": 1, "maximum": OVERSUBSCRIPTION_MAXIMUM}, {"type": "null"}]}),
    ] = None
    """Sum of the limits of a device's tenants over its memory: 1.0 = limits never exceed the device; null = no bound."""

    queue_timeout: Duration = 300.0
    """How long a tenant's first context waits for its turn before it gets CUDA_ERROR_OUT_OF_MEMORY."""

    idle_after: Duration = 600.0
    """How long without an open cell and without GPU work until a tenant counts as idle."""

    suspend_after: OptionalDuration = None
    """How long until an idle tenant's device memory moves to the host although nobody waits for it; never = only under pressure."""

    deep_suspend_after: OptionalDuration = None
    """How long until a suspended tenant's context is given back as well; never = not at all."""

    unmanaged: Literal["warn", "deny", "stop"] = "warn"
    """What happens to processes that use a device of the pool without being tenants."""

    @model_validator(mode="after")
    def _consistent(self) -> Policy:
        if self.default_class is not None and self.default_class not in self.classes:
            raise BrokenRule("default_class", value=self.default_class, allowed=_one_of(self.classes) if self.classes else "null: `classes` is empty")
        for name, tenant_class in self.classes.items():
            for key in ("memory", "compute", "compute_cap"):
                value, bound = getattr(tenant_class, key), getattr(self.bounds, key)
                if value is not None and bound is not None and _larger(value, bound):
                    raise BrokenRule("classes", name, key, value=_plain(value), allowed=f"at most bounds.{key}, {_plain(bound)}")
        for earlier, later in (("idle_after", "suspend_after"), ("suspend_after", "deep_suspend_after")):
            first, second = getattr(self, earlier), getattr(self, later)
            if second is not None and (first is None or second < first):
                allowed = f"never, as {earlier} is never" if first is None else f"{earlier} ({first:g} s) or longer, or never"
                raise BrokenRule(later, value=second, allowed=allowed)
        return self

    def tenant_class(self, name: str | None) -> TenantClass:
        """The class of that name; None, or a name that the policy no longer has: the default class."""
        if name is not None and name in self.classes:
            return self.classes[name]
        return self.classes[self.default_class] if self.default_class is not None else TenantClass()

    def pool_memory(self, device: Device) -> int:
        """Bytes of `device` that the pool may hand out (`device_memory`, at most the card)."""
        return min(device.memory_total, self.device_memory.of(device.memory_total))

    def uses(self, device: Device) -> bool:
        """Whether `devices` names this device, by index, UUID or the beginning of the UUID."""
        return self.devices == "all" or any(
            entry == device.index if isinstance(entry, int) else device.uuid.startswith(entry) for entry in self.devices
        )


def _devices(value: Any) -> Any:
    allowed = "all, or a list of device indexes (0, 1, ...) and UUIDs (GPU-..., MIG-...)"
    if value == "all":
        return value
    if not isinstance(value, (list, tuple)) or not value or len(set(map(repr, value))) < len(value):
        raise InvalidValue(field="devices", value=value, allowed=allowed)
    for entry in value:
        is_index = isinstance(entry, int) and not isinstance(entry, bool) and entry >= 0
        if not is_index and not (isinstance(entry, str) and entry.startswith(("GPU-", "MIG-"))):
            raise InvalidValue(field="devices", value=entry, allowed=allowed)
    return tuple(value)


def _larger(value: Amount | float, bound: Amount | float) -> bool:
    """Whether `value` exceeds `bound` on every device; a size against a fraction depends on the device, so it is not decided here."""
    if isinstance(value, Amount):
        if value.bytes is not None and bound.bytes is not None:
            return value.bytes > bound.bytes
        return value.fraction is not None and bound.fraction is not None and value.fraction > bound.fraction
    return value > bound


def _plain(value: Amount | float) -> str | float:
    return str(value) if isinstance(value, Amount) else value


def _one_of(names: Any) -> str:
    return "one of " + ", ".join(sorted(names))


def policy_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a policy file. Published as `jupyter_vgpu/policy.schema.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(mode="validation"),
        "title": "jupyter-vgpu policy",
    }
