"""The bodies that operations take, checked: names, shapes and bounds here; what the values mean is the rules' affair (pool/)."""

from __future__ import annotations

from typing import Any, TypeVar

from pydantic import BaseModel, ConfigDict, Field, ValidationError

from jupyter_vgpu.pool.model import NO_CAP, InvalidValue, LeaseRequest

_TEXT_MAXIMUM = 4096


class _Body(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True, populate_by_name=True)


class NewLease(_Body):
    """What is asked for stays as it came: a wrong wish is clamped with a visible reason, not refused (unless `strict`)."""

    name: str = Field(min_length=1, max_length=_TEXT_MAXIMUM)
    kernel_id: str | None = Field(None, max_length=_TEXT_MAXIMUM)
    path: str | None = Field(None, max_length=_TEXT_MAXIMUM)
    lease_class: Any = Field(None, alias="class")
    memory: Any = None
    compute: Any = None
    compute_cap: Any = None
    share: Any = None
    priority: Any = None
    visible_devices: str | None = Field(None, max_length=_TEXT_MAXIMUM)
    strict: bool = False

    def request(self) -> LeaseRequest:
        return LeaseRequest(
            lease_class=self.lease_class,
            memory=self.memory,
            compute=self.compute,
            compute_cap=self.compute_cap,
            share=self.share,
            priority=self.priority,
            visible_devices=self.visible_devices,
        )


class LeaseChange(_Body):
    lease_class: Any = Field(None, alias="class")
    memory: Any = None
    compute: Any = None
    compute_cap: Any = None
    share: Any = None
    priority: Any = None
    device: Any = None

    def request(self) -> LeaseRequest:
        """Raises `InvalidValue` for an empty change, and for a null where there is nothing that null could mean."""
        names = sorted(field.alias or name for name, field in type(self).model_fields.items())
        if not self.model_fields_set:
            raise InvalidValue(field=None, value={}, allowed=f"at least one of {', '.join(names)}", message="the change is empty")
        given = {name: getattr(self, name) for name in self.model_fields_set}
        for name, value in given.items():
            if value is None and name != "compute_cap":
                field = type(self).model_fields[name].alias or name
                raise InvalidValue(field=field, value=None, allowed="a value; leave the field out to keep what is")
        if given.get("compute_cap", NO_CAP) is None:
            given["compute_cap"] = NO_CAP
        return LeaseRequest(**given)


class NamedProcess(_Body):
    pid: int = Field(ge=1, le=2**31 - 1)


class ActivityReport(_Body):
    open_cells: int = Field(ge=0, le=2**31 - 1)


Body = TypeVar("Body", bound=_Body)


def parse(model: type[Body], value: object) -> Body:
    """Raises `InvalidValue` that names the first wrong field, what came and what is allowed."""
    if not isinstance(value, dict):
        raise InvalidValue(field=None, value=_short(value), allowed="a JSON object", message="the body is not a JSON object")
    try:
        return model.model_validate(value)
    except ValidationError as error:
        first = error.errors(include_url=False)[0]
        field = ".".join(str(part) for part in first["loc"]) or None
        if first["type"] == "extra_forbidden":
            allowed = "one of " + ", ".join(sorted(info.alias or name for name, info in model.model_fields.items()))
            message = f"{field}: unknown field; allowed: {allowed}"
            raise InvalidValue(field=field, value=_short(first["input"]), allowed=allowed, message=message) from None
        if first["type"] == "missing":
            raise InvalidValue(field=field, value=None, allowed="a value", message=f"{field}: missing") from None
        raise InvalidValue(field=field, value=_short(first["input"]), allowed=first["msg"].removeprefix("Input should be ")) from None


def _short(value: object) -> object:
    """What came, for the error: whole if it is small."""
    text = repr(value)
    return value if len(text) <= 200 else text[:200] + "…"
