"""binder/: the simulated demo starts as Binder starts it, and its memory stays below what Binder gives."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import threading
import time
import urllib.error
import urllib.request
from pathlib import Path

import nbformat
import psutil
import pytest
from nbclient import NotebookClient

from tests.waiting import until

ROOT = Path(__file__).parents[2]
START_TIMEOUT = 60


def used_by_tenants_of(socket: str) -> int:
    """Bytes (proportional set size) of all processes with this VGPU_SOCKET: server, kernels, arbiter, device process."""
    total = 0
    for process in psutil.process_iter():
        try:
            if process.pid != os.getpid() and process.environ().get("VGPU_SOCKET") == socket:
                total += process.memory_full_info().pss
        except psutil.Error:
            continue
    return total


class Peak(threading.Thread):
    """The largest figure of `measure` until `stop`."""

    def __init__(self, measure) -> None:
        super().__init__(daemon=True)
        self.value = 0
        self._measure = measure
        self._stopped = threading.Event()

    def run(self) -> None:
        while not self._stopped.wait(0.1):
            self.value = max(self.value, self._measure())

    def stop(self) -> int:
        self._stopped.set()
        self.join()
        return self.value


@pytest.fixture
def server(simulated, monkeypatch):
    """JupyterLab behind binder/start on a free port."""
    monkeypatch.delenv("VGPU_SIMULATED")
    options = ["--no-browser", "--IdentityProvider.token=demo", "--ServerApp.port=0", "--allow-root", f"--ServerApp.root_dir={ROOT}"]
    # As an installed wheel's own configuration does, which tests/packaging/ holds to it.
    options.append("--ServerApp.jpserver_extensions=jupyter_vgpu=True")
    log = open(simulated / "lab.log", "w+b")
    process = subprocess.Popen([str(ROOT / "binder" / "start"), sys.executable, "-m", "jupyterlab", *options], stderr=log, stdout=log)
    yield process, simulated / "lab.log"
    process.terminate()
    process.wait(timeout=30)
    log.close()


def url_of(log: Path, process: subprocess.Popen) -> str:
    deadline = time.monotonic() + START_TIMEOUT
    while time.monotonic() < deadline and process.poll() is None:
        for word in log.read_text(errors="replace").split():
            if word.startswith("http://127.0.0.1:") and "token=" in word:
                return word.split("/lab")[0]
        time.sleep(0.1)
    raise AssertionError(log.read_text(errors="replace")[-3000:])


def wait_for_simulated_pool(url: str) -> None:
    """The server writes its address before it answers there, and it answers before its arbiter does."""

    def answer() -> dict | None:
        try:
            with urllib.request.urlopen(f"{url}/vgpu/api/pool?token=demo", timeout=30) as response:
                pool = json.load(response)
        except urllib.error.HTTPError:
            raise
        except urllib.error.URLError:
            return None
        return pool if pool["arbiter"] else None

    assert until(answer, within=START_TIMEOUT, what="a pool with an arbiter")["simulated"]


def test_demo_stays_below_one_gigabyte(server, simulated, monkeypatch):
    process, log = server
    url = url_of(log, process)
    wait_for_simulated_pool(url)
    monkeypatch.setenv("VGPU_SIMULATED", "2x16GiB")
    notebook = nbformat.read(ROOT / "examples" / "two_kernels.ipynb", as_version=4)
    peak = Peak(lambda: used_by_tenants_of(os.environ["VGPU_SOCKET"]))
    peak.start()
    try:
        NotebookClient(notebook, timeout=120, resources={"metadata": {"path": str(ROOT / "examples")}}).execute()
    finally:
        used = peak.stop()
    print(f"JupyterLab, the notebook's two kernels, arbiter and device process: {used / 1e6:.0f} MB at most")
    assert 100e6 < used < 1e9


@pytest.mark.parametrize("name", ["start", "postBuild"])
def test_scripts_are_executable_and_parse(name):
    assert os.access(ROOT / "binder" / name, os.X_OK)
    subprocess.run(["bash", "-n", str(ROOT / "binder" / name)], check=True)


def test_start_replaces_itself_with_the_command_on_simulated_devices():
    environment = {name: value for name, value in os.environ.items() if name != "VGPU_SIMULATED"}
    command = [str(ROOT / "binder" / "start"), sys.executable, "-c", "import os; print(os.getpid(), os.environ['VGPU_SIMULATED'])"]
    with subprocess.Popen(command, env=environment, stdout=subprocess.PIPE, text=True) as process:
        assert process.communicate(timeout=30)[0] == f"{process.pid} 2x16GiB\n"
