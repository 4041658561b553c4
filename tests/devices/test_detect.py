import subprocess
import sys

import pytest

from jupyter_vgpu.devices import choose
from jupyter_vgpu.pool.model import InvalidValue


def machine(root, *files):
    for file in files:
        (root / file).parent.mkdir(parents=True, exist_ok=True)
        (root / file).touch()
    return root


GPU = "proc/driver/nvidia/gpus/0000:01:00.0/information"


@pytest.mark.parametrize(
    ("files", "expected"),
    [
        ([], None),
        (["dev/nvidiactl", "dev/nvidia0"], "nvidia"),
        (["dev/nvidiactl", "dev/nvidia7"], "nvidia"),
        (["dev/nvidiactl"], None),
        (["dev/nvidiactl", "dev/nvidia-uvm", "dev/nvidia-modeset"], None),
        (["dev/nvidia0"], None),
        ([GPU, "usr/bin/nvidia-modprobe"], "nvidia"),
        ([GPU], None),
        (["dev/dxg", "usr/lib/wsl/lib/libcuda.so.1"], "nvidia"),
        (["dev/dxg"], None),
    ],
    ids=["bare", "one", "one-of-many", "no-card", "helpers", "no-control", "before-first-use", "container-of-gpu-host", "wsl", "wsl-other"],
)
def test_devices_are_found_by_their_files(tmp_path, files, expected):
    assert choose({}, root=machine(tmp_path, *files)) == expected


def test_simulated_devices_are_there_where_they_are_asked_for_and_nowhere_else(tmp_path):
    real = machine(tmp_path, "dev/nvidiactl", "dev/nvidia0")
    assert choose({"VGPU_SIMULATED": "2x16GiB"}, root=real) == "simulated"
    assert choose({"VGPU_SIMULATED": ""}, root=real) == "nvidia"


def test_a_simulation_that_cannot_be_read_is_an_error_and_not_a_real_device(tmp_path):
    with pytest.raises(InvalidValue):
        choose({"VGPU_SIMULATED": "two"}, root=machine(tmp_path, "dev/nvidiactl", "dev/nvidia0"))


def test_choosing_loads_no_library_and_no_heavy_module():
    program = """
import sys
from jupyter_vgpu.devices import choose
choose({"VGPU_SIMULATED": "2x16GiB"})
choose({})
loaded = open("/proc/self/maps").read()
assert "libcuda" not in loaded and "libnvidia-ml" not in loaded
heavy = {"pynvml", "pydantic", "yaml", "cffi", "tornado", "jupyter_server"} & set(sys.modules)
assert not heavy, heavy
"""
    subprocess.run([sys.executable, "-c", program], check=True, timeout=60)
