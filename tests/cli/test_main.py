from __future__ import annotations

import sys

import pytest

from jupyter_vgpu.arbiter import client
from jupyter_vgpu.cli import COMMANDS, main


@pytest.mark.parametrize("command", sorted(COMMANDS))
def test_every_command_explains_itself(command, capsys):
    with pytest.raises(SystemExit) as ended:
        main([command, "--help"])
    assert ended.value.code == 0
    assert f"jupyter vgpu {command}" in capsys.readouterr().out


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["status", "--nonsense"], ["set", "only-an-id"]])
def test_wrong_usage_is_status_2_and_says_what_is_allowed(arguments, capsys):
    with pytest.raises(SystemExit) as ended:
        main(arguments)
    assert ended.value.code == 2
    assert "usage: jupyter vgpu" in capsys.readouterr().err


def test_no_arbiter_is_one_line_and_status_3(monkeypatch, capsys):
    def unavailable(environ):
        raise client.ArbiterUnavailable("no arbiter answers at /there")

    monkeypatch.setattr(client.ArbiterClient, "start", unavailable)
    assert main(["status"]) == 3
    assert capsys.readouterr().err == "jupyter vgpu: no arbiter answers at /there\n"


def test_run_imports_no_server_and_no_other_command(jupyter_vgpu):
    probe = "import sys, jupyter_vgpu.cli.run, jupyter_vgpu.arbiter.client; print([m for m in ('tornado', 'pydantic') if m in sys.modules])"
    import subprocess

    result = subprocess.run([sys.executable, "-c", probe], capture_output=True, text=True, check=True)
    assert result.stdout == "[]\n"
