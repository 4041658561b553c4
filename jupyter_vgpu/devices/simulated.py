"""``VGPU_SIMULATED``: which simulated devices a user asks for. Read here and, in the same way, by the simulator (native/simgpu)."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from jupyter_vgpu.pool.model import InvalidValue

VARIABLE = "VGPU_SIMULATED"
CONTEXT_DEFAULT = 300 * 1024**2
DEVICES_MAXIMUM = 16
MEMORY_MAXIMUM = 16 * 1024**4
GRANULARITY = 2 * 1024**2

ALLOWED = (
    f"COUNTxSIZE or SIZE, several separated by commas, {DEVICES_MAXIMUM} devices at most, sizes in MiB, GiB or TiB that are multiples of "
    "2MiB; then context=SIZE; for instance 2x16GiB,context=300MiB"
)

_SIZE = r"([0-9]{1,12})(MiB|GiB|TiB)"
_DEVICES = re.compile(rf"(?:([0-9]{{1,2}})x)?{_SIZE}")
_CONTEXT = re.compile(rf"context={_SIZE}")
_SHIFTS = {"MiB": 20, "GiB": 30, "TiB": 40}


@dataclass(frozen=True)
class SimulatedSpec:
    """Simulated devices. `text` as the user wrote it (the arbiter's directory is named by it); bytes for the rest."""

    text: str
    memory: tuple[int, ...]
    context: int = CONTEXT_DEFAULT


def simulated_spec(environ: Mapping[str, str]) -> SimulatedSpec | None:
    """The simulated devices that `environ` asks for; None where ``VGPU_SIMULATED`` is unset or empty. Raises `InvalidValue`."""
    text = environ.get(VARIABLE, "")
    if not text:
        return None
    wrong = InvalidValue(field=VARIABLE, value=text, allowed=ALLOWED)
    memory: list[int] = []
    context = CONTEXT_DEFAULT
    for part in text.split(","):
        if match := _CONTEXT.fullmatch(part):
            context = int(match[1]) << _SHIFTS[match[2]]
            if context > MEMORY_MAXIMUM:
                raise wrong
        elif match := _DEVICES.fullmatch(part):
            count, size = int(match[1] or 1), int(match[2]) << _SHIFTS[match[3]]
            if not 1 <= count <= DEVICES_MAXIMUM - len(memory) or not 0 < size <= MEMORY_MAXIMUM or size % GRANULARITY:
                raise wrong
            memory += [size] * count
        else:
            raise wrong
    if not memory:
        raise wrong
    return SimulatedSpec(text=text, memory=tuple(memory), context=context)
