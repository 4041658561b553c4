"""Real clients over the shim: cuda-bindings and nvidia-ml-py find symbols in their own ways."""

from __future__ import annotations

import json
import statistics
import subprocess
import sys
import time

from tests.native.shim.conftest import MIB

CUDA = """
import json
from cuda.bindings import driver as d
def call(result):
    assert result[0] == d.CUresult.CUDA_SUCCESS, result
    return result[1] if len(result) == 2 else result[1:]
call(d.cuInit(0))
context = call(d.cuDevicePrimaryCtxRetain(0))
call(d.cuCtxSetCurrent(context))
pointer = call(d.cuMemAlloc(600 << 20))
print(json.dumps({
    "count": call(d.cuDeviceGetCount()),
    "total": call(d.cuDeviceTotalMem(0)),
    "info": call(d.cuMemGetInfo()),
    "denied": d.cuMemAlloc(600 << 20)[0].name,
    "freed": d.cuMemFree(pointer)[0].name,
    "again": d.cuMemAlloc(600 << 20)[0].name,
}))
"""

NVML = """
import json, pynvml
pynvml.nvmlInit()
handles = [pynvml.nvmlDeviceGetHandleByIndex(i) for i in range(pynvml.nvmlDeviceGetCount())]
print(json.dumps({
    "uuids": [pynvml.nvmlDeviceGetUUID(h) for h in handles],
    "v1": pynvml.nvmlDeviceGetMemoryInfo(handles[0]).total,
    "v2": pynvml.nvmlDeviceGetMemoryInfo(handles[0], version=pynvml.nvmlMemory_v2).total,
    "processes": len(pynvml.nvmlDeviceGetComputeRunningProcesses(handles[0])),
}))
"""


def run(code: str, env: dict[str, str]) -> dict:
    done = subprocess.run([sys.executable, "-c", code], env=env, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_cuda_bindings_lives_within_the_quota(built, arbiter):
    assert run(CUDA, built.environment(arbiter)) == {
        "count": 1,
        "total": 1024 * MIB,
        "info": [424 * MIB, 1024 * MIB],
        "denied": "CUDA_ERROR_OUT_OF_MEMORY",
        "freed": "CUDA_SUCCESS",
        "again": "CUDA_SUCCESS",
    }


def test_pynvml_shows_the_tenants_view(built, arbiter):
    assert run(NVML, built.environment(arbiter)) == {
        "uuids": ["GPU-01010101-0101-0101-0101-010101010101"],
        "v1": 1024 * MIB,
        "v2": 1024 * MIB,
        "processes": 0,
    }


def test_process_that_never_uses_cuda_starts_within_two_milliseconds_of_before(built, arbiter):
    """Median of runs in turn: other load on the machine meets both alike."""
    environments = {"shim": built.environment(arbiter), "plain": built.environment(arbiter, LD_PRELOAD="")}
    samples: dict[str, list[float]] = {name: [] for name in environments}
    for _ in range(41):
        for name, env in environments.items():
            start = time.perf_counter()
            subprocess.run(["/bin/true"], env=env, check=True)
            samples[name].append(time.perf_counter() - start)
    assert statistics.median(samples["shim"]) - statistics.median(samples["plain"]) < 0.002
    assert not arbiter.asked("attach")
