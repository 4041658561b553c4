"""torch, CuPy and JAX as tenants of a 10 GiB lease: they see it, are denied beyond it in their own words, and work on."""

from __future__ import annotations

import subprocess

import pytest

GIB = 1 << 30
QUOTA = 10 * GIB
DENIED = {"torch": "OutOfMemoryError", "cupy": "OutOfMemoryError", "jax": "RESOURCE_EXHAUSTED"}
# tf32 is off by default for torch and CuPy matrix products, and asked to be off in JAX's.
FLOAT32_ERROR = 1e-5


@pytest.mark.parametrize("framework", ["torch", "cupy", "jax"])
def test_framework_sees_its_quota_is_denied_beyond_it_and_works_on(framework, bare, tenant, report):
    program = f"{framework}_quota.py"
    alone = bare(program, str(1 << 20))
    seen = tenant(program, str(QUOTA + GIB), options=("--memory", "10GiB"))

    assert alone["denied"] is None and alone["total"] > 2 * QUOTA
    # JAX rounds its limit down to its own granularity.
    assert seen["total"] == pytest.approx(QUOTA, rel=1e-6 if framework != "jax" else 1e-3)
    assert seen.get("properties_total", QUOTA) == QUOTA
    assert seen["denied"] == DENIED[framework]
    assert seen["relative_error"] < FLOAT32_ERROR
    assert seen["relative_error"] == pytest.approx(alone["relative_error"], rel=1e-9), "same kernels, same bits"
    report.append(f"| {framework} | {alone['total']:,} | {seen['total']:,} | {seen['denied']} at 11 GiB | {seen['relative_error']:.1e} |")


def test_nvidia_smi_shows_the_quota(environ, report):
    query = ["nvidia-smi", "--query-gpu=memory.total,memory.used", "--format=csv,noheader,nounits"]
    done = subprocess.run(
        ["jupyter", "vgpu", "run", "--memory", "10GiB", "--", *query], env=environ, capture_output=True, text=True, timeout=120, check=True
    )
    total, used = (int(value) for value in done.stdout.strip().splitlines()[0].split(","))
    assert total == 10 * 1024
    assert 0 <= used <= total
    report.append(f"| nvidia-smi | | {total} MiB total, {used} MiB used | | |")


def test_nvidia_smi_prints_its_full_table(environ):
    done = subprocess.run(
        ["jupyter", "vgpu", "run", "--memory", "10GiB", "--", "nvidia-smi"], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10240MiB" in done.stdout
