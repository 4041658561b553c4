"""A policy file's text, read: YAML to a `Policy`, or one error that says where in the file, what came and what is allowed.

Called by the arbiter at start and after every edit of the file, and by ``jupyter vgpu policy check``.
"""

from __future__ import annotations

import difflib
import reprlib
from collections.abc import Iterator
from typing import Any

import yaml
from pydantic import ValidationError

from .model import InvalidValue
from .policy import CLASS_NAME_PATTERN, Bounds, BrokenRule, Policy, TenantClass

TEXT_MAXIMUM = 1024**2
"""Characters; a policy is a page or two, and YAML's aliases can make much of little."""

Path = tuple[Any, ...]


class PolicyError(InvalidValue):
    """A policy that cannot be in force. `field` is the key's path in the file (``classes.small.memory``), `line` counts from 1.

    The message has one line for each error found; `field`, `value`, `allowed` and `line` are the first one's.
    """

    def __init__(self, *, field: str | None, value: Any, allowed: str | None, message: str, line: int | None = None):
        super().__init__(field=field, value=value, allowed=allowed, message=message)
        self.line = line


def load_policy(text: str) -> Policy:
    """The policy in `text` (YAML; JSON is YAML too). Empty text is the default policy. Raises `PolicyError`."""
    if len(text) > TEXT_MAXIMUM:
        allowed = f"at most {TEXT_MAXIMUM} characters"
        raise PolicyError(field=None, value=len(text), allowed=allowed, message=f"{len(text)} characters are no policy; allowed: {allowed}")
    root, data = _parse(text)
    lines: dict[tuple[str, ...], int] = {}
    for path, node, is_repeated in _keys(root):
        line = node.start_mark.line + 1
        if is_repeated:
            message = _sentence(path, path[-1], "each key once", line)
            raise PolicyError(field=_name(path), value=path[-1], allowed="each key once", message=message, line=line)
        lines[tuple(map(str, path))] = line
    if data is None:
        return Policy()
    if not isinstance(data, dict):
        message = "line 1: a policy consists of `key: value` lines"
        raise PolicyError(field=None, value=_short(data), allowed="keys and values", message=message, line=1)
    try:
        return Policy.model_validate(data)
    except ValidationError as error:
        raise _policy_error(error, lines) from None


def _parse(text: str) -> tuple[yaml.Node | None, Any]:
    """The text's nodes, which know their lines, and its data."""
    try:
        return yaml.compose(text, Loader=yaml.SafeLoader), yaml.safe_load(text)
    except yaml.MarkedYAMLError as error:
        line = error.problem_mark.line + 1 if error.problem_mark else None
        raise PolicyError(field=None, value=None, allowed="YAML", message=f"line {line}: not YAML: {error.problem}", line=line) from None
    except (yaml.YAMLError, RecursionError, ValueError) as error:
        # ValueError: a timestamp or number that looks like one and is none, such as 2026-02-31.
        problem = "nested too deeply" if isinstance(error, RecursionError) else str(error)
        raise PolicyError(field=None, value=None, allowed="YAML", message=f"not YAML: {problem}") from None


def _keys(root: yaml.Node | None) -> Iterator[tuple[Path, yaml.Node, bool]]:
    """Every key and list item with its path, its node, and whether the same mapping had that key before."""
    waiting: list[tuple[Path, yaml.Node]] = [((), root)] if root is not None else []
    seen: set[int] = set()
    while waiting:
        path, node = waiting.pop()
        if id(node) in seen:  # an alias, which may even lead back to itself
            continue
        seen.add(id(node))
        if isinstance(node, yaml.MappingNode):
            keys: set[Any] = set()
            for key, value in node.value:
                below = (*path, key.value if isinstance(key, yaml.ScalarNode) else "?")
                yield below, key, below[-1] in keys
                keys.add(below[-1])
                waiting.append((below, value))
        elif isinstance(node, yaml.SequenceNode):
            for index, item in enumerate(node.value):
                yield (*path, index), item, False
                waiting.append(((*path, index), item))


def _policy_error(error: ValidationError, lines: dict[tuple[str, ...], int]) -> PolicyError:
    found = []
    for details in error.errors(include_url=False):
        path, value, allowed = _explain(details)
        keys = tuple(map(str, path))
        line = next((lines[keys[:length]] for length in range(len(keys), 0, -1) if keys[:length] in lines), None)
        found.append((line, path, value, allowed))
    found.sort(key=lambda each: (each[0] is None, each[0] or 0))
    line, path, value, allowed = found[0]
    message = "\n".join(_sentence(path, value, allowed, line) for line, path, value, allowed in found)
    return PolicyError(field=_name(path), value=value, allowed=allowed, message=message, line=line)


def _explain(details: Any) -> tuple[Path, Any, str]:
    """Path, value and what is allowed, of one of pydantic's errors."""
    path, value, kind = tuple(details["loc"]), details["input"], details["type"]
    cause = details.get("ctx", {}).get("error")
    if isinstance(cause, BrokenRule):
        return (*path, *cause.path), cause.value, cause.allowed
    if isinstance(cause, InvalidValue):
        return path, _short(cause.value), cause.allowed
    if kind == "extra_forbidden":
        known = _known_keys(path[:-1])
        close = difflib.get_close_matches(str(path[-1]), known, n=1)
        hint = f" (did you mean {close[0]}?)" if close else ""
        return path, path[-1], f"the keys {', '.join(known)}{hint}"
    if path and path[-1] == "[key]":
        return path[:-1], value, f"a class name: letters, digits and . _ - ({CLASS_NAME_PATTERN})"
    if kind in ("dict_type", "model_type", "model_attributes_type"):
        return path, _short(value), f"the keys {', '.join(_known_keys(path))}" if path != ("classes",) else "class names with their keys"
    return path, _short(value), details.get("ctx", {}).get("expected") or details["msg"].removeprefix("Input should be ")


def _known_keys(path: Path) -> list[str]:
    model = TenantClass if path[:1] == ("classes",) else Bounds if path == ("bounds",) else Policy
    return list(model.model_fields)


def _name(path: Path) -> str | None:
    return ".".join(str(step) for step in path) or None


def _sentence(path: Path, value: Any, allowed: str, line: int | None) -> str:
    where = f"line {line}: " if line is not None else ""
    return f"{where}{_name(path)}: {value!r} is not allowed; allowed: {allowed}"


def _short(value: Any) -> Any:
    """Scalars as they are, containers cut: the value goes into messages, and aliases can make a small file's value huge."""
    if isinstance(value, str):
        return value[:200]
    return value if value is None or isinstance(value, (bool, int, float)) else reprlib.repr(value)
