"""The shim under test, built from this tree, before a stub driver, a fake arbiter and tiny C tenants."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

import pytest

from tests.native.shim.fake_arbiter import FakeArbiter

ROOT = Path(__file__).resolve().parents[3]
INCLUDE = ROOT / "native" / "include"
MIB = 1 << 20


def compile_c(source: Path, output: Path, *options: str) -> Path:
    compiler = shutil.which(os.environ.get("CC", "cc"))
    assert compiler, "a C compiler is needed to test the native parts"
    subprocess.run(
        [compiler, "-std=gnu11", "-Wall", "-Wextra", "-Werror", "-O1", f"-I{INCLUDE}", str(source), "-o", str(output), *options], check=True
    )
    return output


class Built:
    """Paths of what was built: link directories as the arbiter makes them, and the tenant."""

    def __init__(self, directory: Path):
        build = directory / "build"
        # cmake and ninja may be those of the environment that runs us, activated or not.
        env = os.environ | {"PATH": str(Path(sys.executable).parent) + os.pathsep + os.environ["PATH"]}
        for command in (
            ["cmake", "-S", str(ROOT), "-B", str(build), "-G", "Ninja", "-DCMAKE_BUILD_TYPE=RelWithDebInfo"],
            ["cmake", "--build", str(build), "-j2", "--target", "vgpu_shim", "vgpu_shim_nvml"],
        ):
            subprocess.run([shutil.which(command[0], path=env["PATH"]), *command[1:]], env=env, check=True, stdout=subprocess.DEVNULL)
        self.library = build / "native" / "shim" / "libvgpu_shim.so"
        self.nvml_library = build / "native" / "shim" / "libvgpu_shim_nvml.so"
        self.shim = directory / "shim"
        self.driver = directory / "driver"
        for links in (self.shim, self.driver):
            links.mkdir()
        (self.shim / "libcuda.so.1").symlink_to(self.library)
        (self.shim / "libnvidia-ml.so.1").symlink_to(self.nvml_library)
        shared = ("-shared", "-fPIC", "-fvisibility=hidden", "-Wl,-Bsymbolic", "-ldl", "-lpthread")
        stub = Path(__file__).parent.parent / "stub"
        compile_c(stub / "stub_driver.c", self.driver / "libcuda.so.1", *shared, "-Wl,-soname,libcuda.so.1")
        compile_c(stub / "stub_nvml.c", self.driver / "libnvidia-ml.so.1", *shared, "-Wl,-soname,libnvidia-ml.so.1")
        self.tenant = compile_c(Path(__file__).parent / "tenant.c", directory / "tenant", "-ldl", "-lpthread")

    def environment(self, arbiter=None, **more: str) -> dict[str, str]:
        env = {k: v for k, v in os.environ.items() if not k.startswith(("VGPU_", "STUB_", "CUDA_", "LD_"))}
        env["LD_PRELOAD"] = f"{self.shim}/libcuda.so.1 {self.shim}/libnvidia-ml.so.1"
        env["LD_LIBRARY_PATH"] = f"{self.shim}:{self.driver}"
        if arbiter:
            env |= {"VGPU_SHIM_SOCKET": arbiter.path, "VGPU_TOKEN": arbiter.token}
        return env | more


class Tenant:
    """A tenant process that takes commands (tenant.c)."""

    def __init__(self, built: Built, env: dict[str, str]):
        self.process = subprocess.Popen(
            [str(built.tenant)], env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, bufsize=1
        )
        ready = self.process.stdout.readline().split()
        assert ready and ready[0] == "ready", self.process.stderr.read()
        self.pid = int(ready[1])

    def send(self, *words):
        self.process.stdin.write(" ".join(map(str, words)) + "\n")
        self.process.stdin.flush()

    def text(self) -> str:
        line = self.process.stdout.readline()
        assert line, f"the tenant ended ({self.process.wait()}): {self.process.stderr.read()}"
        return line.rstrip("\n")

    def __call__(self, *words):
        """Sends one command; one number, or a tuple of several."""
        self.send(*words)
        numbers = tuple(int(w) for w in self.text().split())
        return numbers[0] if len(numbers) == 1 else numbers

    def ask(self, *words) -> str:
        self.send(*words)
        return self.text()

    def end(self) -> str:
        """Ends it in the ordinary way; what it said on stderr."""
        self.process.stdin.close()
        assert self.process.wait(timeout=20) == 0
        return self.process.stderr.read()


@pytest.fixture(scope="session")
def built(tmp_path_factory) -> Built:
    return Built(tmp_path_factory.mktemp("shim"))


@pytest.fixture
def directory():
    """Short, for AF_UNIX paths end at 107 bytes."""
    path = Path(tempfile.mkdtemp(prefix="vs"))
    yield path
    shutil.rmtree(path)


@pytest.fixture
def arbiters(directory):
    """Makes fake arbiters; one per test unless it closes the first."""
    made = []

    def make(**knobs):
        made.append(FakeArbiter(directory, **knobs))
        return made[-1]

    yield make
    for arbiter in made:
        arbiter.close()


@pytest.fixture
def arbiter(arbiters):
    return arbiters(limits=(1024 * MIB,))


@pytest.fixture
def tenants(built):
    """Starts tenants and ends what is left of them."""
    started = []

    def start(arbiter=None, **env: str) -> Tenant:
        started.append(Tenant(built, built.environment(arbiter, **env)))
        return started[-1]

    yield start
    for tenant in started:
        tenant.process.kill()
        tenant.process.wait()
        for pipe in (tenant.process.stdin, tenant.process.stdout, tenant.process.stderr):
            pipe.close()


@pytest.fixture
def tenant(tenants, arbiter) -> Tenant:
    """One with a context on its only device."""
    started = tenants(arbiter)
    assert started("init", 0) == 0
    assert started("context", 0)[0] == 0
    return started
