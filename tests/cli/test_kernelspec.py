from __future__ import annotations

import json
import sys

import pytest

from jupyter_vgpu.cli import main
from jupyter_vgpu.cli.kernelspec import managed


def test_installed_kernelspec_runs_the_stock_command_behind_ours(tmp_path, clean_environment, capsys):
    assert main(["kernelspec", "install", "--class", "small", "--memory", "8GiB", "--compute", "0.25", "--prefix", str(tmp_path)]) == 0
    directory = tmp_path / "share" / "jupyter" / "kernels" / "python3-vgpu-small"
    assert str(directory) in capsys.readouterr().out
    spec = json.loads((directory / "kernel.json").read_text())
    options = ["--best-effort", "--class=small", "--memory=8GiB", "--compute=0.25"]
    assert spec["argv"][: 5 + len(options)] == [sys.executable, "-m", "jupyter_vgpu", "run", *options, "--"]
    assert spec["argv"][5 + len(options) :][-3:] == ["ipykernel_launcher", "-f", "{connection_file}"]
    assert spec["metadata"]["vgpu"] == {"class": "small", "memory": "8GiB", "compute": 0.25}
    assert (directory / "logo-64x64.png").exists()


def test_all_that_the_base_says_is_kept():
    base = {"argv": ["R", "-e", "IRkernel::main()"], "display_name": "R", "language": "R", "env": {"A": "1"}, "interrupt_mode": "message"}
    spec = managed(base, display_name="R (GPU share)", asked={})
    assert spec["argv"][-4:] == ["--", "R", "-e", "IRkernel::main()"]
    assert {key: spec[key] for key in ("language", "env", "interrupt_mode")} == {
        "language": "R",
        "env": {"A": "1"},
        "interrupt_mode": "message",
    }


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--memory", "much"], "--memory: 'much'"),
        (["--compute", "2"], "--compute: '2'"),
        (["--from", "none-such"], "--from: 'none-such'"),
        (["--name", "a b"], "--name: 'a b'"),
        (["--name", ".."], "--name: '..'"),
        (["--name", "."], "--name: '.'"),
        (["--name", "../a"], "--name: '../a'"),
    ],
)
def test_wrong_value_is_refused_and_nothing_installed(arguments, said, tmp_path, clean_environment, capsys):
    assert main(["kernelspec", "install", "--prefix", str(tmp_path), *arguments]) == 1
    assert said in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []
