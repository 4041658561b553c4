"""What the shim adds: nanoseconds per driver call on a stub driver, and milliseconds to a process that never uses CUDA.

    python benchmarks/shim_overhead.py [--json]

Run from the repository with the native parts built. The stub driver (tests/native/stub) does next to nothing, so the differences are the
shim's own; a real launch costs microseconds. Variants are run in turn, best of several, to keep the machine's other load out.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from jupyter_vgpu.native import locate  # noqa: E402
from tests.native.shim.fake_arbiter import FakeArbiter  # noqa: E402

ROUNDS = 5
STARTS = 200


def compile_c(source: Path, output: Path, *options: str) -> None:
    subprocess.run(["cc", "-std=gnu11", "-O2", f"-I{ROOT / 'native' / 'include'}", str(source), "-o", str(output), *options], check=True)


def call_costs(program: Path, env: dict[str, str]) -> dict[str, float]:
    output = subprocess.run([str(program)], env=env, check=True, capture_output=True, text=True).stdout
    return {name: float(value) for name, value in (line.rsplit(" ", 1) for line in output.splitlines())}


def start_cost(env: dict[str, str]) -> float:
    """Seconds for one process that does nothing."""
    start = time.perf_counter()
    subprocess.run(["/bin/true"], env=env, check=True)
    return time.perf_counter() - start


def measure(directory: Path) -> dict:
    shim, driver = directory / "shim", directory / "driver"
    shim.mkdir(), driver.mkdir()
    (shim / "libcuda.so.1").symlink_to(locate.library("libvgpu_shim.so"))
    (shim / "libnvidia-ml.so.1").symlink_to(locate.library("libvgpu_shim_nvml.so"))
    stub = ROOT / "tests" / "native" / "stub" / "stub_driver.c"
    compile_c(
        stub, driver / "libcuda.so.1", "-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic,-soname,libcuda.so.1", "-ldl", "-lpthread"
    )
    program = directory / "calls"
    compile_c(ROOT / "benchmarks" / "shim_overhead.c", program, "-ldl")

    plain = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU_", "LD_", "CUDA_", "STUB_"))}
    preload = {"LD_PRELOAD": f"{shim}/libcuda.so.1 {shim}/libnvidia-ml.so.1", "LD_LIBRARY_PATH": f"{shim}:{driver}"}
    arbiter = FakeArbiter(directory, limits=(8 << 30, 8 << 30))
    try:
        environments = {
            "plain": plain | {"LD_LIBRARY_PATH": str(driver)},
            "unmanaged": plain | preload,
            "one device": plain | preload | {"VGPU_SHIM_SOCKET": arbiter.path, "VGPU_TOKEN": arbiter.token, "CUDA_VISIBLE_DEVICES": "0"},
            "two devices": plain | preload | {"VGPU_SHIM_SOCKET": arbiter.path, "VGPU_TOKEN": arbiter.token},
        }
        calls: dict[str, dict[str, float]] = {}
        for _ in range(ROUNDS):
            for name, env in environments.items():
                for call, cost in call_costs(program, env).items():
                    best = calls.setdefault(call, {})
                    best[name] = min(cost, best.get(name, cost))
        starts: dict[str, list[float]] = {"plain": [], "one device": []}
        for _ in range(STARTS):
            for name, samples in starts.items():
                samples.append(start_cost(environments[name]))
    finally:
        arbiter.close()
    return {"calls_ns": calls, "start_ms": {name: statistics.median(samples) * 1e3 for name, samples in starts.items()}}


def conditions() -> str:
    model = next(
        (line.split(":")[1].strip() for line in Path("/proc/cpuinfo").read_text().splitlines() if line.startswith("model name")), "?"
    )
    compiler = subprocess.run(["cc", "--version"], capture_output=True, text=True).stdout.splitlines()[0]
    load = ", ".join(f"{x:.1f}" for x in os.getloadavg())
    return f"{model}, {os.cpu_count()} CPUs, load {load}; Linux {platform.release()}, {' '.join(platform.libc_ver())}, {compiler}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", action="store_true", help="machine-readable")
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="vb") as directory:
        result = measure(Path(directory)) | {"conditions": conditions()}
    if options.json:
        print(json.dumps(result))
        return
    print(f"conditions: {result['conditions']}")
    print(f"stub driver; best of {ROUNDS} runs of 15 rounds in turn; ns per call, in brackets what the shim adds")
    names = list(next(iter(result["calls_ns"].values())))
    print(f"{'':12}" + "".join(f"{name:>20}" for name in names))
    init = result["calls_ns"].pop("cuInit")
    for call, costs in result["calls_ns"].items():
        plain = costs["plain"]
        cells = [f"{cost:.1f}" if name == "plain" else f"{cost:.1f} ({cost - plain:+.1f})" for name, cost in costs.items()]
        print(f"{call:12}" + "".join(f"{cell:>20}" for cell in cells))
    print("first cuInit: " + ", ".join(f"{name} {cost / 1e3:.0f} us" for name, cost in init.items()) + " (attach included)")
    start = result["start_ms"]
    added = start["one device"] - start["plain"]
    print(
        f"a process that never uses CUDA (/bin/true, median of {STARTS} in turn): {start['plain']:.2f} ms, under the shim +{added:.2f} ms"
    )


if __name__ == "__main__":
    main()
