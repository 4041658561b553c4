"""What set-up does where something is missing."""

from __future__ import annotations

import os
import subprocess
from pathlib import Path

import pytest

from tests.packaging.environments import ROOT, path_without

NO_BROWSER = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")


@pytest.fixture
def programs(tmp_path: Path):
    """Makes a PATH without some programs, on which `id` says that we are not root and `apt-get` fails the test if it is called."""

    def make(*hidden: str, root: bool = False) -> dict[str, str]:
        path = path_without(tmp_path / "bin", *hidden, "id", "apt-get")
        for name, script in {"id": f"echo {0 if root else 1000}", "apt-get": f'echo "$@" >> {tmp_path}/apt-get.log'}.items():
            program = tmp_path / "bin" / name
            program.write_text(f"#!/bin/sh\n{script}\n")
            program.chmod(0o755)
        kept = {name: value for name, value in os.environ.items() if name not in ("VGPU_CHROMIUM", "PLAYWRIGHT_BROWSERS_PATH", "CXX")}
        return {**kept, "PATH": path, "HOME": str(tmp_path)}

    return make


def prerequisites(environment: dict[str, str], *arguments: str) -> subprocess.CompletedProcess:
    command = [str(ROOT / "tools" / "prerequisites.sh"), "python3", *arguments]
    return subprocess.run(command, env=environment, capture_output=True, text=True, check=False)


def test_nothing_is_said_or_installed_where_everything_is_there(programs, tmp_path: Path) -> None:
    done = prerequisites(programs(root=True))
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert not (tmp_path / "apt-get.log").exists()


def test_without_root_it_stops_with_the_one_command_for_all_that_is_missing(programs, tmp_path: Path) -> None:
    done = prerequisites(programs("c++", *NO_BROWSER), "--browser")
    assert done.returncode == 1
    assert [line for line in done.stderr.splitlines() if "sudo" in line] == ["  sudo apt-get install -y g++ chromium"]
    assert not (tmp_path / "apt-get.log").exists()


def test_without_root_playwrights_browser_is_taken_where_it_can_be_fetched(programs, tmp_path: Path) -> None:
    environment = programs(*NO_BROWSER, "jlpm")
    fetched = tmp_path / ".cache" / "ms-playwright" / "chromium-1" / "chrome-linux"
    jlpm = tmp_path / "bin" / "jlpm"
    jlpm.write_text(f'#!/bin/sh\n[ "$*" = "playwright install chromium" ] && mkdir -p {fetched} && cp /bin/true {fetched}/chrome\n')
    jlpm.chmod(0o755)
    done = prerequisites(environment, "--browser")
    assert done.returncode == 0, done.stderr


def test_where_playwrights_browser_cannot_be_fetched_it_stops_with_the_one_command(programs, tmp_path: Path) -> None:
    environment = programs(*NO_BROWSER, "jlpm")
    jlpm = tmp_path / "bin" / "jlpm"
    jlpm.write_text("#!/bin/sh\nexit 1\n")
    jlpm.chmod(0o755)
    done = prerequisites(environment, "--browser")
    assert done.returncode == 1
    assert "  sudo apt-get install -y chromium\n" in done.stderr


def test_as_root_on_debian_it_installs_what_is_missing(programs, tmp_path: Path) -> None:
    done = prerequisites(programs(*NO_BROWSER, root=True), "--browser")
    assert done.returncode == 0, done.stderr
    called = (tmp_path / "apt-get.log").read_text().splitlines()
    assert called[0].startswith("update") and called[1].startswith("install") and called[1].endswith(" chromium")


def test_the_browser_tests_do_not_make_a_missing_browser_stop_the_lab(programs) -> None:
    assert prerequisites(programs(*NO_BROWSER)).returncode == 0


def test_a_python_that_is_too_old_is_named(programs, tmp_path: Path) -> None:
    environment = programs("python3")
    old = tmp_path / "bin" / "python3"
    old.write_text('#!/bin/sh\n[ "$1" = --version ] && echo "Python 3.9.2" && exit 0\nexit 1\n')
    old.chmod(0o755)
    done = prerequisites(environment)
    assert done.returncode == 1
    assert "3.10 or newer" in done.stderr and "Python 3.9.2" in done.stderr


def test_a_wrong_browser_path_is_an_error_that_names_it_and_installs_nothing(programs, tmp_path: Path) -> None:
    done = prerequisites({**programs(root=True), "VGPU_CHROMIUM": "/no/such/chromium"}, "--browser")
    assert done.returncode == 2
    assert "VGPU_CHROMIUM" in done.stderr and "/no/such/chromium" in done.stderr
    assert not (tmp_path / "apt-get.log").exists()
