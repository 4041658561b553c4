from __future__ import annotations

import os
import shutil
import subprocess
import sys
import sysconfig
import tempfile
from pathlib import Path

import pytest
from jupyter_client.manager import KernelManager

from jupyter_vgpu.native.environment import STARTUP
from tests.kernel.fake_arbiter import TOKEN, FakeArbiter


@pytest.fixture
def short_path():
    """A directory whose sockets stay below the 107 bytes of AF_UNIX, which pytest's tmp_path need not."""
    path = Path(tempfile.mkdtemp(prefix="vgpu-"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def arbiter(short_path):
    server = FakeArbiter(short_path / "a.sock")
    yield server
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="session")
def bare_python(tmp_path_factory) -> Path:
    """A Python in whose environment our package is not installed (ipykernel comes by PYTHONPATH, which reads no .pth files)."""
    directory = tmp_path_factory.mktemp("bare")
    subprocess.run([sys.executable, "-m", "venv", "--without-pip", str(directory)], check=True)
    return directory / "bin" / "python"


@pytest.fixture
def kernel_environment(arbiter, tmp_path) -> dict:
    """What a tenant's kernel gets, as far as %vgpu needs it, with nothing of the person who runs the tests."""
    environment = {name: value for name, value in os.environ.items() if not name.startswith(("VGPU_", "PYTHON", "JUPYTER", "IPYTHON"))}
    return {
        **environment,
        "PYTHONPATH": sysconfig.get_path("purelib"),
        "IPYTHONDIR": str(tmp_path / "ipython"),
        "PYTHONSTARTUP": str(STARTUP),
        "VGPU_SOCKET": arbiter.server_address,
        "VGPU_TOKEN": TOKEN,
    }


class Kernel:
    """A running kernel and the outputs of what it executes."""

    def __init__(self, manager: KernelManager) -> None:
        self.manager = manager
        self.client = manager.client()
        self.client.start_channels()
        self.client.wait_for_ready(timeout=60)

    def run(self, code: str) -> tuple[str, list[dict]]:
        """(reply's status, iopub contents of the outputs) of one cell."""
        outputs: list[dict] = []
        reply = self.client.execute_interactive(code, timeout=60, output_hook=lambda message: outputs.append(message["content"]))
        return reply["content"]["status"], [output for output in outputs if "execution_state" not in output and "code" not in output]

    def text(self, code: str) -> str:
        """Everything that the cell printed or displayed as plain text."""
        status, outputs = self.run(code)
        assert status == "ok", outputs
        return "".join(output.get("text", "") or output.get("data", {}).get("text/plain", "") for output in outputs).strip()

    def stop(self) -> None:
        self.client.stop_channels()
        self.manager.shutdown_kernel(now=True)


@pytest.fixture
def start_kernel(tmp_path):
    """start_kernel(python, environment) -> Kernel; stopped at the end."""
    kernels: list[Kernel] = []

    def start(python: Path | str, environment: dict) -> Kernel:
        manager = KernelManager(kernel_name="python3")
        manager.kernel_spec.argv = [str(python), "-m", "ipykernel_launcher", "-f", "{connection_file}"]
        manager.start_kernel(env=environment, cwd=str(tmp_path))
        kernels.append(Kernel(manager))
        return kernels[-1]

    yield start
    for kernel in kernels:
        kernel.stop()
