"""`jupyter vgpu` for real: arbiter, shim and simulated devices, each test with a pool of its own."""

from __future__ import annotations

import json
import re
import subprocess
import sys
import time

import pytest

from tests.cli.own_pool import own_pool

MEMORY = """
from cuda.bindings import driver
driver.cuInit(0)
driver.cuCtxSetCurrent(driver.cuDevicePrimaryCtxRetain(driver.cuDeviceGet(0)[1])[1])
print(driver.cuMemGetInfo()[2], driver.cuMemAlloc(2 * 1024**3)[0].name, driver.cuMemAlloc(1024**2)[0].name)
"""
GIB = 1024**3


@pytest.fixture
def simulated(clean_environment):
    """Puts the environment of `jupyter_vgpu` on a pool of this test's own."""
    with own_pool() as variables:
        clean_environment.update(variables)
        yield


def test_command_sees_its_quota_and_is_denied_beyond_it_with_cudas_own_error(jupyter_vgpu, simulated):
    result = jupyter_vgpu("run", "--memory", "1GiB", "--", sys.executable, "-c", MEMORY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split() == [str(GIB), "CUDA_ERROR_OUT_OF_MEMORY", "CUDA_SUCCESS"]


def test_simulated_option_needs_no_environment(jupyter_vgpu, simulated, clean_environment):
    del clean_environment["VGPU_SIMULATED"]
    result = jupyter_vgpu("run", "--simulated", "--", sys.executable, "-c", MEMORY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == str(16 * GIB)


def test_lease_is_in_status_can_be_set_and_ends_with_the_command(jupyter_vgpu, simulated, clean_environment):
    code = "import sys; print('ready', flush=True); sys.stdin.read()"
    command = [sys.executable, "-m", "jupyter_vgpu", "run", "--memory", "1GiB", "--compute", "0.25", "--", sys.executable, "-c", code]
    process = subprocess.Popen(command, env=clean_environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        assert process.stdout.readline() == "ready\n"
        (lease,) = json.loads(jupyter_vgpu("status", "--json").stdout)["leases"]
        assert {(part["memory"], part["compute"]) for part in lease["parts"]} == {(GIB, 0.25)}
        changed = jupyter_vgpu("set", lease["id"], "memory=3 GiB")
        assert changed.returncode == 0, changed.stderr
        assert "of 3 GiB" in changed.stdout
    finally:
        process.communicate(timeout=30)
    deadline = time.monotonic() + 10
    while (leases := json.loads(jupyter_vgpu("status", "--json").stdout)["leases"]) and time.monotonic() < deadline:
        pass
    assert leases == []


@pytest.mark.parametrize(
    ("option", "value"), [("--class", "nonsense"), ("--memory", "much"), ("--memory", "999TiB"), ("--compute", "0"), ("--compute", "2")]
)
def test_wrong_request_runs_nothing_and_names_the_value(jupyter_vgpu, simulated, option, value):
    result = jupyter_vgpu("run", option, value, "--", sys.executable, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (125, "")
    assert value in result.stderr
    assert option.strip("-") in result.stderr
    assert "allowed" in result.stderr
    assert json.loads(jupyter_vgpu("status", "--json").stdout)["leases"] == []


def test_best_effort_reduces_a_wrong_request_and_says_so(jupyter_vgpu, simulated):
    result = jupyter_vgpu("run", "--best-effort", "--memory", "999TiB", "--", sys.executable, "-c", MEMORY)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == str(16 * GIB)
    assert "999TiB" in result.stderr


def test_new_lease_inside_a_tenant_is_a_second_one(jupyter_vgpu, simulated):
    inner = [sys.executable, "-m", "jupyter_vgpu", "run", "--new-lease", "--memory", "2GiB", "--", sys.executable, "-c", MEMORY]
    result = jupyter_vgpu("run", "--memory", "1GiB", "--", *inner)
    assert result.returncode == 0, result.stderr
    assert result.stdout.split()[0] == str(2 * GIB)


def test_doctor_finds_nothing_to_complain_about(jupyter_vgpu, simulated):
    result = jupyter_vgpu("doctor")
    assert result.returncode == 0, result.stdout
    assert re.search(r"^ok +shim ", result.stdout, re.MULTILINE)


def test_foreground_arbiter_refuses_where_one_serves_already(jupyter_vgpu, simulated):
    assert jupyter_vgpu("status").returncode == 0
    result = jupyter_vgpu("arbiter")
    assert result.returncode == 3
    assert "already serves" in result.stderr
