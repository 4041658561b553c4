"""torch, CuPy and JAX as tenants of a 10 GiB lease: they see it, are denied beyond it in their own words, and work on."""

from __future__ import annotations

import subprocess
from concurrent.futures import ThreadPoolExecutor

import pytest

GIB = 1 << 30
MIB = 1 << 20
QUOTA = 10 * GIB
DENIED = {"torch": "OutOfMemoryError", "cupy": "OutOfMemoryError", "jax": "RESOURCE_EXHAUSTED"}
# tf32 is off by default for torch and CuPy matrix products, and asked to be off in JAX's.
FLOAT32_ERROR = 1e-5


@pytest.fixture(scope="module", autouse=True)
def table(report):
    report.append("| framework | total seen bare | total seen under 10 GiB | asked for 11 GiB | error of a float32 product, as bare |")
    report.append("|---|---|---|---|---|")


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
    report.append(f"| {framework} | {alone['total']:,} | {seen['total']:,} | {seen['denied']} | {seen['relative_error']:.1e} |")


def test_nvidia_smi_in_the_tenant_agrees_with_cuda(tenant, report):
    seen = tenant("torch_quota.py", str(QUOTA + GIB), options=("--memory", "10GiB"))
    ((total, used),) = seen["holding"]["device"]
    assert total == QUOTA // MIB
    # The two questions are asked one after the other, and the residual is measured anew in between.
    assert used == pytest.approx(seen["holding"]["cuda_used"] / MIB, abs=0.02 * total)
    assert used > 3 * 1024
    ((pid, process_used),) = seen["holding"]["processes"]
    assert pid == seen["pid"]
    assert process_used == pytest.approx(used, abs=0.02 * total)
    report.append("")
    report.append(
        f"nvidia-smi beside torch holding 3 GiB: {used} of {total} MiB, its one process {process_used} MiB; "
        f"cudaMemGetInfo: {seen['holding']['cuda_used'] / MIB:.0f} MiB used."
    )


def test_nvidia_smi_prints_its_full_table(environ):
    done = subprocess.run(
        ["jupyter", "vgpu", "run", "--memory", "10GiB", "--", "nvidia-smi"], env=environ, capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr
    assert "10240MiB" in done.stdout


def test_two_jax_kernels_start_side_by_side_each_with_three_quarters_of_its_own_quota(tenant, report):
    """Bare, the second would find a quarter of the card: JAX takes 75% of what it is shown."""
    with ThreadPoolExecutor(2) as pool:
        both = list(pool.map(lambda _: tenant("jax_quota.py", str(21 * GIB), options=("--memory", "20GiB")), range(2)))
    for seen in both:
        assert seen["bytes_limit"] == pytest.approx(0.75 * 20 * GIB, rel=1e-3)
        assert seen["denied"] == DENIED["jax"] and seen["relative_error"] < FLOAT32_ERROR
    limits = " and ".join(f"{seen['bytes_limit']:,}" for seen in both)
    report.append("")
    report.append(f"Two JAX programs at once under 20 GiB each, with their default preallocation: limits of {limits} bytes.")
