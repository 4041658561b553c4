"""An installed kernelspec's command, started as clients do that know no provisioners: argv as it stands, with a connection file."""

from __future__ import annotations

import json
import subprocess

import pytest
from jupyter_client import BlockingKernelClient
from jupyter_client.connect import write_connection_file

from tests.cli.own_pool import own_pool
from tests.provisioner.kernels import MEMORY
from tests.waiting import until

GIB = 1024**3


def answers(client: BlockingKernelClient, process: subprocess.Popen) -> bool:
    """A client without a manager takes a heartbeat that is a second late for the kernel's death; the process itself knows better."""
    try:
        client.wait_for_ready(timeout=60)
    except RuntimeError:
        assert process.poll() is None, f"the kernel ended with {process.returncode}"
        return False
    return True


@pytest.fixture
def kernel(jupyter_vgpu, clean_environment, tmp_path):
    """A client to the kernel, and its process."""
    with own_pool() as variables:
        clean_environment.update(variables)
        installed = jupyter_vgpu("kernelspec", "install", "--memory", "1GiB", "--name", "share", "--prefix", str(tmp_path))
        assert installed.returncode == 0, installed.stderr
        spec = json.loads((tmp_path / "share/jupyter/kernels/share/kernel.json").read_text())
        file, _ = write_connection_file(str(tmp_path / "connection.json"))
        process = subprocess.Popen([file if word == "{connection_file}" else word for word in spec["argv"]], env=clean_environment)
        client = BlockingKernelClient(connection_file=file)
        client.load_connection_file()
        client.start_channels()
        try:
            until(lambda: answers(client, process), within=60, what="the kernel's answer")
            yield client, process
        finally:
            client.stop_channels()
            process.kill()
            process.wait()


def run(client: BlockingKernelClient, code: str) -> str:
    """What the cell prints and shows."""
    shown: list[str] = []

    def collect(message: dict) -> None:
        content = message["content"]
        shown.append(content.get("text") or content.get("data", {}).get("text/plain", ""))

    reply = client.execute_interactive(code, output_hook=collect, timeout=60)
    assert reply["content"]["status"] == "ok", reply["content"]
    return "".join(shown).strip()


def test_kernelspecs_raw_argv_is_a_tenant_in_one_process_that_can_resize_itself(kernel):
    client, process = kernel
    assert int(run(client, "import os; print(os.getpid())")) == process.pid
    assert int(run(client, MEMORY)) == GIB
    assert "of 2 GiB" in run(client, "%vgpu memory=2GiB")
    assert int(run(client, MEMORY)) == 2 * GIB
