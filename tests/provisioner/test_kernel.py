"""A kernel's life under the provisioner, for real: arbiter, shim and simulated devices."""

from __future__ import annotations

import asyncio
import json
import os
import signal
import sys

import nbformat
import pytest
from jupyter_client.kernelspec import KernelSpecManager
from jupyter_client.manager import AsyncKernelManager, KernelManager
from jupyter_client.provisioning.factory import KernelProvisionerFactory
from nbclient import NotebookClient

from jupyter_vgpu.native.environment import STARTUP, simgpu_socket
from jupyter_vgpu.native.links import link_directories
from tests.provisioner.kernels import MEMORY, run, until

pytestmark = pytest.mark.asyncio
GIB = 1 << 30
SELF_PORTRAIT = """
import array, os, pynvml
from cuda.bindings import driver
driver.cuInit(0)
devices = [driver.cuDeviceGet(index)[1] for index in range(driver.cuDeviceGetCount()[1])]
for device in devices:
    print(driver.cuDeviceGetName(64, device), bytes(driver.cuDeviceGetUuid(device)[1].bytes).hex(), driver.cuDeviceTotalMem(device))
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(devices[0])[1])
print(driver.cuMemGetInfo())
numbers, back = array.array("I", range(1 << 16)), array.array("I", bytes(4 << 16))
status, pointer = driver.cuMemAlloc(4 << 16)
print(status, driver.cuMemcpyHtoD(pointer, numbers.buffer_info()[0], 4 << 16))
print(driver.cuMemsetD32(pointer, 7, 1), driver.cuMemcpyDtoH(back.buffer_info()[0], pointer, 4 << 16), back[:3], sum(back))
print(driver.cuMemFree(pointer), driver.cuMemAlloc(64 << 30)[0], driver.cuMemGetInfo())
pynvml.nvmlInit()
for index in range(pynvml.nvmlDeviceGetCount()):
    handle = pynvml.nvmlDeviceGetHandleByIndex(index)
    print(pynvml.nvmlDeviceGetUUID(handle), pynvml.nvmlDeviceGetMemoryInfo(handle).total, os.environ.get("CUDA_VISIBLE_DEVICES"))
"""
ENVIRONMENT = "import json, os; print(json.dumps(dict(os.environ)))"


def lease_of(arbiter, manager):
    (lease,) = arbiter.leases(manager.kernel_id)
    return lease


async def test_kernel_is_a_tenant_and_sees_its_quota(arbiter, manager):
    manager.kernel_spec.metadata["vgpu"] = {"memory": "4GiB", "compute": 0.25}
    await manager.start_kernel()
    assert await run(manager, MEMORY) == str(4 * GIB)
    lease = lease_of(arbiter, manager)
    assert {(part["memory"], part["compute"]) for part in lease["parts"]} == {(4 * GIB, 0.25)}
    assert manager.provisioner.pid in [process["pid"] for process in lease["processes"]]


async def test_without_policy_and_wishes_a_kernel_sees_whole_devices(arbiter, manager):
    await manager.start_kernel()
    assert await run(manager, MEMORY) == str(16 * GIB)
    assert await run(manager, "print(driver.cuDeviceGetCount()[1])") == "2"


async def test_notebook_alone_without_policy_sees_and_computes_what_a_stock_kernel_does(arbiter, manager, monkeypatch):
    await manager.start_kernel()
    ours = await run(manager, SELF_PORTRAIT)
    await manager.shutdown_kernel(now=True)
    # The same devices as a stock kernel has them: the simulated driver found by the loader, and nothing of ours before it.
    monkeypatch.setenv("LD_LIBRARY_PATH", str(link_directories(os.environ).sim))
    monkeypatch.setenv("VGPU_SIMGPU_SOCKET", simgpu_socket(os.environ, directory=arbiter.runtime.directory))
    KernelProvisionerFactory.instance().default_provisioner_name = "local-provisioner"
    stock = AsyncKernelManager(kernel_name="python3")
    await stock.start_kernel()
    try:
        assert await run(stock, SELF_PORTRAIT) == ours
    finally:
        await stock.shutdown_kernel(now=True)
    assert "17179869184" in ours


async def test_shutdown_gives_the_lease_back(arbiter, manager):
    await manager.start_kernel()
    assert lease_of(arbiter, manager)
    await manager.shutdown_kernel()
    assert arbiter.leases() == []


@pytest.mark.parametrize("now", [False, True])
async def test_restart_keeps_the_lease_and_its_size(arbiter, manager, now):
    manager.kernel_spec.metadata["vgpu"] = {"memory": "4GiB"}
    await manager.start_kernel()
    await run(manager, "1")
    before = lease_of(arbiter, manager)
    arbiter.patch_lease(before["id"], memory="5GiB")
    await manager.restart_kernel(now=now)
    assert await run(manager, MEMORY) == str(5 * GIB)
    assert lease_of(arbiter, manager)["id"] == before["id"]


async def test_crashed_kernel_that_is_restarted_keeps_the_lease(arbiter, manager):
    await manager.start_kernel()
    await run(manager, "1")
    before = lease_of(arbiter, manager)
    os.kill(manager.provisioner.pid, signal.SIGKILL)
    await until(lambda: manager.provisioner.process.poll() is not None)
    await manager.restart_kernel(now=True)  # what jupyter_client's restarter does
    assert await run(manager, "print(6 * 7)") == "42"
    assert lease_of(arbiter, manager)["id"] == before["id"]


async def test_kill_alone_keeps_the_lease(arbiter, manager):
    await manager.start_kernel()
    await manager.provisioner.kill(restart=False)
    await manager.provisioner.wait()
    assert lease_of(arbiter, manager)


async def test_restart_after_the_lease_was_taken_away_gets_a_new_one(arbiter, manager):
    await manager.start_kernel()
    before = lease_of(arbiter, manager)
    arbiter.release(before["id"])
    await manager.restart_kernel(now=True)
    assert lease_of(arbiter, manager)["id"] != before["id"]


async def test_kernel_that_cannot_be_launched_leaves_no_lease(arbiter, manager):
    manager.kernel_spec.argv[0] = "/no/such/python"
    with pytest.raises(FileNotFoundError):
        await manager.start_kernel()
    assert arbiter.leases() == []


async def test_interrupt_ends_the_cell_and_keeps_the_lease(arbiter, manager, tmp_path):
    running = tmp_path / "running"
    code = f"""
import time
try:
    open({str(running)!r}, "w").close()
    time.sleep(600)
except KeyboardInterrupt:
    print("interrupted")
"""
    await manager.start_kernel()
    cell = asyncio.create_task(run(manager, code))
    await until(running.exists, within=60, what="the running cell")
    await manager.interrupt_kernel()
    assert await cell == "interrupted"
    assert lease_of(arbiter, manager)


async def test_kernel_goes_on_when_the_arbiter_is_killed_and_keeps_its_lease_under_the_next(arbiter, manager):
    manager.kernel_spec.metadata["vgpu"] = {"memory": "4GiB"}
    await manager.start_kernel()
    assert await run(manager, MEMORY) == str(4 * GIB)
    before = lease_of(arbiter, manager)
    os.kill(arbiter.pool()["arbiter"]["pid"], signal.SIGKILL)
    assert await run(manager, "print(driver.cuMemGetInfo()[2])") == str(4 * GIB)
    await manager.restart_kernel()
    assert await run(manager, MEMORY) == str(4 * GIB)
    assert lease_of(arbiter, manager)["id"] == before["id"]


async def test_argv_is_untouched_and_the_users_own_startup_file_runs(arbiter, manager, monkeypatch, tmp_path):
    own = tmp_path / "own.py"
    own.write_text("mine = 42")
    monkeypatch.setenv("PYTHONSTARTUP", str(own))
    await manager.start_kernel()
    assert await run(manager, "print(mine)") == "42"
    assert manager.provisioner.process.args == manager.format_kernel_cmd()


async def test_kernel_of_another_language_gets_the_shim_and_no_startup_file(arbiter, manager):
    manager.kernel_spec.language = "R"
    await manager.start_kernel()
    environment = json.loads(await run(manager, ENVIRONMENT))
    assert "libcuda.so.1" in environment["LD_PRELOAD"] and "PYTHONSTARTUP" not in environment


async def test_wrong_wish_starts_the_kernel_and_the_lease_says_why_it_differs(arbiter, manager, caplog):
    manager.kernel_spec.metadata["vgpu"] = {"memory": "much", "class": "nonsense"}
    await manager.start_kernel()
    assert await run(manager, "print(6 * 7)") == "42"
    message = lease_of(arbiter, manager)["message"]
    assert "much" in message or "nonsense" in message
    assert message in caplog.text


async def test_kernel_inside_a_tenant_joins_its_lease(arbiter, manager, monkeypatch):
    manager.kernel_spec.metadata["vgpu"] = {"memory": "4GiB"}
    await manager.start_kernel()
    environment = json.loads(await run(manager, ENVIRONMENT))
    for name in ("VGPU_TOKEN", "VGPU_LEASE", "VGPU_SHIM_SOCKET"):
        monkeypatch.setenv(name, environment[name])
    inner = AsyncKernelManager(kernel_name="python3")
    await inner.start_kernel()
    try:
        assert await run(inner, MEMORY) == str(4 * GIB)
        assert await run(inner, "import os; print(os.environ['VGPU_LEASE'])") == environment["VGPU_LEASE"]
        assert len(arbiter.leases()) == 1
        await inner.interrupt_kernel()
    finally:
        await inner.shutdown_kernel(now=True)
    assert len(arbiter.leases()) == 1


async def test_provisioner_info_carries_the_lease_to_another_process(arbiter, manager):
    await manager.start_kernel()
    info = await manager.provisioner.get_provisioner_info()
    lease = lease_of(arbiter, manager)
    assert info["vgpu"]["lease"] == lease["id"]
    other = type(manager.provisioner)(kernel_id=manager.kernel_id, kernel_spec=manager.kernel_spec)
    await other.load_provisioner_info(info)
    await other.cleanup(restart=False)
    assert arbiter.leases() == []


def test_blocking_kernel_manager_takes_and_gives_the_lease(arbiter):
    manager = KernelManager(kernel_name="python3")
    manager.start_kernel()
    try:
        assert lease_of(arbiter, manager)
        manager.interrupt_kernel()
        manager.restart_kernel(now=True)
        assert lease_of(arbiter, manager)
    finally:
        manager.shutdown_kernel(now=True)
    assert arbiter.leases() == []


def test_nbclient_without_a_server_runs_a_notebook_under_the_quota_of_its_kernelspec(pool, monkeypatch, tmp_path):
    spec = KernelSpecManager().get_kernel_spec("python3").to_dict()
    directory = tmp_path / "kernels" / "quota"
    directory.mkdir(parents=True)
    spec.update(argv=[sys.executable, *spec["argv"][1:]], metadata={"vgpu": {"memory": "2GiB"}})
    (directory / "kernel.json").write_text(json.dumps(spec))
    monkeypatch.setenv("JUPYTER_PATH", str(tmp_path))
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(MEMORY)])
    NotebookClient(notebook, kernel_name="quota", timeout=60).execute()
    assert notebook.cells[0].outputs[0]["text"].strip() == str(2 * GIB)


async def test_without_devices_the_environment_is_the_stock_one(manager, monkeypatch):
    monkeypatch.setattr("jupyter_vgpu_provisioner.local.choose", lambda environ: None)
    await manager.start_kernel()
    ours = json.loads(await run(manager, ENVIRONMENT))
    await manager.shutdown_kernel(now=True)
    monkeypatch.setenv("JUPYTER_DEFAULT_PROVISIONER_NAME", "local-provisioner")
    KernelProvisionerFactory.clear_instance()
    stock = AsyncKernelManager(kernel_name="python3")
    await stock.start_kernel()
    try:
        theirs = json.loads(await run(stock, ENVIRONMENT))
    finally:
        await stock.shutdown_kernel(now=True)
    differing = {"JUPYTER_DEFAULT_PROVISIONER_NAME", "JPY_PARENT_PID"}
    assert {k: v for k, v in ours.items() if k not in differing} == {k: v for k, v in theirs.items() if k not in differing}
    assert str(STARTUP) not in ours.values()
