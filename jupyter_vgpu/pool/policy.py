"""The pool's policy: what an administrator may decide, and what holds when nobody decided anything.

`Policy()` is the harmless default: nothing gets worse for anybody. `docs/policy.md` explains every key to administrators;
`jupyter_vgpu/policy.schema.json` is the published JSON Schema (`policy_schema`), held equal to these models by a test.
Reading a file's text is `policy_text.py`'s work.
"""

from __future__ import annotations

from typing import Annotated, Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from .model import PRIORITIES, Device, InvalidValue
from .policy_fields import Count, DeviceList, Duration, Factor, Fraction, Limit, OptionalDuration, Reserve
from .units import Amount

CLASS_NAME_PATTERN = r"^[A-Za-z0-9][A-Za-z0-9._-]{0,62}$"
WHOLE = Amount(fraction=1.0)
NOTHING = Amount(bytes=0)


class BrokenRule(InvalidValue):
    """Two keys that contradict each other. `path` is the offending key's, relative to the model that checks the rule."""

    def __init__(self, *path: str, value: Any, allowed: str):
        super().__init__(field=".".join(path), value=value, allowed=allowed)
        self.path = path


class _Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True, strict=True, use_attribute_docstrings=True)


class TenantClass(_Strict):
    """A named template for leases. All memory and compute figures are per device."""

    description: str = ""
    """What a person choosing a class should know."""

    memory: Limit = Field(WHOLE, json_schema_extra={"default": str(WHOLE)})
    """Limit: what CUDA calls the device's total memory. A size, or a fraction of the device."""

    memory_guarantee: Reserve = Field(NOTHING, json_schema_extra={"default": NOTHING.bytes})
    """Part of the limit that is never lent to others while the tenant holds a context."""

    compute: Fraction = 1.0
    """Share of the device's time under contention: a weight against the shares of the others."""

    compute_cap: Fraction | None = None
    """Hard ceiling of the device's time, also when nobody else wants it; null = none."""

    priority: Literal[PRIORITIES] = "interactive"
    """`interactive` goes before `batch` in the queue and at the device."""

    devices: Count = "all"
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

    classes: dict[Annotated[str, Field(pattern=CLASS_NAME_PATTERN)], TenantClass] = Field(
        {}, json_schema_extra={"additionalProperties": False}
    )
    """Classes by name."""

    bounds: Bounds = Bounds()
    """The most that one tenant may hold of each device."""

    devices: DeviceList = "all"
    """Which of the machine's devices the pool uses: all, or a list of indexes and UUIDs."""

    device_memory: Limit = Field(WHOLE, json_schema_extra={"default": str(WHOLE)})
    """How much of each device the pool hands out; the rest is left to programs that are no tenants."""

    oversubscription: Factor | None = None
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
            allowed = "one of " + ", ".join(sorted(self.classes)) if self.classes else "null, because there are no classes"
            raise BrokenRule("default_class", value=self.default_class, allowed=allowed)
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


def _larger(value: Amount | float, bound: Amount | float) -> bool:
    """Whether `value` exceeds `bound` on every device; a size against a fraction depends on the device, so it is not decided here."""
    if isinstance(value, Amount):
        if value.bytes is not None and bound.bytes is not None:
            return value.bytes > bound.bytes
        return value.fraction is not None and bound.fraction is not None and value.fraction > bound.fraction
    return value > bound


def _plain(value: Amount | float) -> str | float:
    return str(value) if isinstance(value, Amount) else value


def policy_schema() -> dict[str, Any]:
    """The JSON Schema (draft 2020-12) of a policy file. Published as `jupyter_vgpu/policy.schema.json`."""
    return {
        "$schema": "https://json-schema.org/draft/2020-12/schema",
        **Policy.model_json_schema(mode="validation"),
        "title": "jupyter-vgpu policy",
    }
