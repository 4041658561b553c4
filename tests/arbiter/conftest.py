"""An arbiter in a process of its own, over devices that a test describes, and a check that it leaves nothing behind."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from jupyter_vgpu.arbiter.client import ArbiterClient
from jupyter_vgpu.arbiter.runtime import Runtime, answers
from jupyter_vgpu.native import locate
from tests.arbiter.shim import Shim
from tests.waiting import until

GIB = 1 << 30
UUIDS = ("GPU-11111111-2222-3333-4444-000000000000", "GPU-11111111-2222-3333-4444-000000000001")


class RunningArbiter:
    """Start, kill and ask an arbiter; its runtime directory is short because AF_UNIX paths are."""

    def __init__(self, directory: Path, uuids: tuple[str, ...] = UUIDS, *, policy: str | None = None):
        self.directory = directory
        self.policy = directory / "policy.yaml"
        if policy is not None:
            self.policy.write_text(policy)
        self.books = directory / "devices.json"
        self.uuids = uuids
        self.set_processes({})
        self.socket = directory / "arbiter.sock"
        self.environ = {
            **{name: value for name, value in os.environ.items() if not name.startswith("VGPU_")},
            "VGPU_SOCKET": str(self.socket),
            "VGPU_TEST_DEVICES": str(self.books),
            "XDG_CONFIG_HOME": str(directory / "config"),
            "HOME": str(directory),
        }
        if policy is not None:
            self.environ["VGPU_POLICY"] = str(self.policy)
        self.process: subprocess.Popen | None = None

    def set_processes(self, processes: dict[str, dict[int, int]]) -> None:
        """What "NVML" says from now on: bytes by device and pid."""
        devices = [{"uuid": uuid, "memory_total": 16 * GIB} for uuid in self.uuids]
        temporary = self.books.with_suffix(".new")
        temporary.write_text(json.dumps({"devices": devices, "processes": processes}))
        temporary.rename(self.books)

    def start(self, *arguments: str) -> RunningArbiter:
        with open(self.directory / "arbiter.log", "ab") as log:
            self.process = subprocess.Popen(
                [sys.executable, "-m", "tests.arbiter.fake_arbiter", "--socket", str(self.socket), *arguments],
                env=self.environ,
                cwd=Path(__file__).resolve().parents[2],
                stdout=log,
                stderr=log,
            )
        until(lambda: self.process.poll() is not None or answers(self.socket), what="the arbiter's start")
        assert self.process.poll() is None, self.log()
        return self

    def log(self) -> str:
        return (self.directory / "arbiter.log").read_text()

    def kill(self) -> None:
        self.process.kill()
        self.process.wait()

    def stop(self) -> None:
        if self.process.poll() is None:
            self.process.terminate()
            assert self.process.wait(timeout=10) == 0, self.log()

    @property
    def client(self) -> ArbiterClient:
        return ArbiterClient(Runtime(directory=self.directory, socket=self.socket))

    def tenant_client(self, token: str) -> ArbiterClient:
        return ArbiterClient(Runtime(directory=self.directory, socket=self.socket), token=token)

    def shim(self, created: dict) -> Shim:
        return Shim(created["shim_socket"], created["token"])

    def baseline(self) -> dict[str, object]:
        """What must be the same before and after: leases, and what the process holds open."""
        open_files = []
        for name in os.listdir(f"/proc/{self.process.pid}/fd"):
            with contextlib.suppress(FileNotFoundError):  # closed since it was listed
                open_files.append(os.readlink(f"/proc/{self.process.pid}/fd/{name}"))
        return {
            "leases": len(self.client.leases()),
            "memfds": sum("memfd:vgpu-control" in name for name in open_files),
            "pidfds": sum("[pidfd]" in name for name in open_files),
            "mappings": Path(f"/proc/{self.process.pid}/maps").read_text().count("vgpu-control"),
        }


@pytest.fixture
def directory() -> Iterator[Path]:
    path = Path(tempfile.mkdtemp(prefix="vgpu-t-", dir="/tmp"))
    yield path
    shutil.rmtree(path, ignore_errors=True)


@pytest.fixture
def make_arbiter(directory: Path, request: pytest.FixtureRequest) -> Iterator[Callable[..., RunningArbiter]]:
    """Makes arbiters that are not yet started; each test has its own UUIDs, since the lock on a device is host-wide."""
    made: list[RunningArbiter] = []
    unique = f"{os.getpid() & 0xFFFFFFFF:08x}"
    uuids = tuple(uuid.replace("11111111", unique) for uuid in UUIDS)

    def make(*, policy: str | None = None, name: str = "a") -> RunningArbiter:
        path = directory / name
        path.mkdir(mode=0o700)
        made.append(RunningArbiter(path, uuids, policy=policy))
        return made[-1]

    yield make
    for arbiter in made:
        if arbiter.process is not None:
            arbiter.stop()


@pytest.fixture
def arbiter(make_arbiter: Callable[..., RunningArbiter]) -> Iterator[RunningArbiter]:
    """A running one without a policy; after the test nothing may be left in it once its leases are released."""
    running = make_arbiter().start()
    before = running.baseline()
    yield running
    if running.process.poll() is None:
        for lease in running.client.leases():
            running.client.release(lease["id"])
        until(lambda: running.baseline() == before, within=5, what=f"the baseline {before}")


class TenantProcess:
    """A child that attaches and obeys; see shim_process.py."""

    def __init__(self, created: dict):
        self.created = created
        self.process = subprocess.Popen(
            [sys.executable, "-m", "tests.arbiter.shim_process"],
            env={**os.environ, "VGPU_SHIM_SOCKET": created["shim_socket"], "VGPU_TOKEN": created["token"]},
            cwd=Path(__file__).resolve().parents[2],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )
        status, slot = self.process.stdout.readline().split()
        self.status, self.slot = int(status), None if slot == "None" else int(slot)

    @property
    def pid(self) -> int:
        return self.process.pid

    def ask(self, line: str) -> int:
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return int(self.process.stdout.readline())

    def kill(self) -> None:
        self.process.send_signal(signal.SIGKILL)

    def close(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self.process.kill()
        self.process.wait()
        self.process.stdin.close()
        self.process.stdout.close()


@pytest.fixture
def tenant_process() -> Iterator[Callable[[dict], TenantProcess]]:
    processes: list[TenantProcess] = []

    def start(created: dict) -> TenantProcess:
        processes.append(TenantProcess(created))
        return processes[-1]

    yield start
    for process in processes:
        process.close()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # Not a skip: without the library these tests say nothing, and a green run must mean that they ran.
    if any("arbiter" in str(item.path) for item in items) and not (locate.library_directory() / locate.SCHEDULER).is_file():
        raise pytest.UsageError("libvgpu_scheduler.so is missing; build and install the native part first (make setup)")
