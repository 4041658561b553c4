"""What is imported is declared: what came along with something else may stay away tomorrow."""

from __future__ import annotations

import ast
import importlib.metadata
import re
import sys
from collections.abc import Iterable
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT

if sys.version_info >= (3, 11):
    import tomllib
else:
    import tomli as tomllib

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())
OURS = {"jupyter_vgpu", "jupyter_vgpu_provisioner", "tests"}
# kernel/ runs where IPython is and nothing of ours need be: it imports what it finds there.
PACKAGE = [path for folder in ("jupyter_vgpu", "kernelprovisioner") for path in (ROOT / folder).rglob("*.py") if "kernel" not in path.parts]
# The programs of tests/device bring their frameworks with the machine.
TESTS = [path for path in (ROOT / "tests").rglob("*.py") if not {"device", "node_modules"} & set(path.parts)]


def normalized(requirement: str) -> str:
    return re.sub(r"[-_.]+", "-", re.match(r"[\w.-]+", requirement).group()).lower()


def imported(paths: Iterable[Path]) -> dict[str, str]:
    """Top-level module name -> one file that imports it; standard library and ours left out."""
    found = {}
    for path in paths:
        for node in ast.walk(ast.parse(path.read_text())):
            names = []
            if isinstance(node, ast.Import):
                names = [alias.name for alias in node.names]
            elif isinstance(node, ast.ImportFrom) and node.level == 0:
                names = [node.module]
            found.update({name.split(".")[0]: str(path.relative_to(ROOT)) for name in names})
    beside = {path.stem for path in TESTS} | {path.parent.name for path in TESTS}
    return {name: path for name, path in found.items() if name not in sys.stdlib_module_names | OURS | beside}


def undeclared(paths: Iterable[Path], requirements: Iterable[str]) -> dict[str, str]:
    declared = {normalized(requirement) for requirement in requirements}
    owners = importlib.metadata.packages_distributions()
    # A package that is not installed here (tomli on a newer Python) goes by its module's name.
    distributions = {name: {normalized(owner) for owner in owners.get(name, [name])} for name in imported(paths)}
    return {name: path for name, path in imported(paths).items() if not declared & distributions[name]}


def test_what_the_package_imports_is_a_dependency() -> None:
    assert undeclared(PACKAGE, PROJECT["project"]["dependencies"]) == {}


def test_what_the_tests_import_is_a_dependency_or_in_the_test_or_demo_extra() -> None:
    extras = PROJECT["project"]["optional-dependencies"]
    assert undeclared(TESTS, [*PROJECT["project"]["dependencies"], *extras["demo"], *extras["test"]]) == {}


@pytest.mark.parametrize("extra", [None, "demo", "test"])
def test_no_dependency_is_declared_twice(extra: str | None) -> None:
    requirements = PROJECT["project"]["optional-dependencies"][extra] if extra else PROJECT["project"]["dependencies"]
    names = [normalized(requirement) for requirement in requirements]
    assert sorted(names) == sorted(set(names))


def test_the_build_group_installs_what_a_build_without_isolation_needs() -> None:
    assert set(PROJECT["build-system"]["requires"]) <= set(PROJECT["dependency-groups"]["build"])
