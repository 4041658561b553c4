"""Fixtures: the distributions as a user builds them, each built once, and environments with them."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, Environment, clean_environment, kernelspec, path_without, run


@pytest.fixture(scope="session")
def sdist(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("sdist")
    run(sys.executable, "-m", "build", "--sdist", "--no-isolation", "--outdir", out, ROOT)
    return next(out.glob("*.tar.gz"))


@pytest.fixture(scope="session")
def unpacked(sdist: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The sdist's content: sources outside any git repository."""
    out = tmp_path_factory.mktemp("unpacked")
    run("tar", "-xzf", sdist, "-C", out)
    return next(out.iterdir())


def _build_wheel(unpacked: Path, out: Path, **extra: str) -> Path:
    run(sys.executable, "-m", "build", "--wheel", "--no-isolation", "--outdir", out, unpacked, env=clean_environment(**extra))
    return next(out.glob("*.whl"))


@pytest.fixture(scope="session")
def wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The wheel for this platform, built from the sdist with no Node on the PATH."""
    path = path_without(tmp_path_factory.mktemp("path") / "bin", "node", "nodejs", "npm", "npx", "jlpm", "yarn")
    return _build_wheel(unpacked, tmp_path_factory.mktemp("wheel"), PATH=path)


@pytest.fixture(scope="session")
def pure_wheel(unpacked: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """What macOS and Windows build."""
    return _build_wheel(unpacked, tmp_path_factory.mktemp("pure"), VGPU_PURE_WHEEL="1")


@pytest.fixture
def environment(tmp_path: Path) -> Environment:
    made = Environment(tmp_path / "env", borrow=True)
    kernelspec(made)
    return made
