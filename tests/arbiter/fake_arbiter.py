"""An arbiter over devices that a test describes: VGPU_TEST_DEVICES names a JSON file, read anew at every look.

    {"devices": [{"uuid": ..., "memory_total": ...}], "processes": {uuid: {pid: bytes}}}

With VGPU_TEST_UNAVAILABLE there are none, for the reason that it gives.
"""

from __future__ import annotations

import json
import sys
from collections.abc import Mapping
from pathlib import Path

from jupyter_vgpu.arbiter import process
from jupyter_vgpu.devices import DeviceMemory, DeviceProcess, DeviceReadings
from jupyter_vgpu.pool.model import Device


class FakeDevices:
    def __init__(self, path: Path):
        self._path = path

    def _read(self) -> dict:
        return json.loads(self._path.read_text())

    def devices(self) -> list[Device]:
        return [
            Device(uuid=entry["uuid"], index=index, name=f"Test GPU {index}", memory_total=entry["memory_total"])
            for index, entry in enumerate(self._read()["devices"])
        ]

    def memory(self, uuid: str) -> DeviceMemory:
        total = next(entry["memory_total"] for entry in self._read()["devices"] if entry["uuid"] == uuid)
        used = sum(process.memory_used for process in self.processes(uuid))
        return DeviceMemory(total=total, used=used, free=total - used)

    def processes(self, uuid: str) -> list[DeviceProcess]:
        held = self._read().get("processes", {}).get(uuid, {})
        return [DeviceProcess(pid=int(pid), memory_used=used) for pid, used in held.items()]

    def readings(self, uuid: str) -> DeviceReadings:
        return DeviceReadings(utilization=0.25, temperature=40.0, power=None)

    def close(self) -> None:
        """Nothing is open between two looks."""


def find_backend(environ: Mapping[str, str]) -> tuple[FakeDevices | None, str | None, bool]:
    unavailable = environ.get("VGPU_TEST_UNAVAILABLE")
    return (None, unavailable, False) if unavailable else (FakeDevices(Path(environ["VGPU_TEST_DEVICES"])), None, False)


if __name__ == "__main__":
    sys.exit(process.main(backend=find_backend))
