from __future__ import annotations

import json
import os
import subprocess
import sys

import pytest

SHOW = "import json, os; print(json.dumps([os.getpid(), dict(os.environ)]))"


def test_without_a_gpu_a_share_of_one_is_an_error_that_says_what_to_do(jupyter_vgpu):
    result = jupyter_vgpu("run", "--memory", "1GiB", "--", sys.executable, "-c", "print('ran')")
    assert (result.returncode, result.stdout) == (125, "")
    assert "--simulated" in result.stderr
    assert "Traceback" not in result.stderr


def test_best_effort_runs_the_command_unchanged_and_says_so(jupyter_vgpu, clean_environment):
    result = jupyter_vgpu("run", "--best-effort", "--memory", "1GiB", "--", sys.executable, "-c", SHOW)
    assert result.returncode == 0, result.stderr
    assert json.loads(result.stdout)[1] == clean_environment
    assert "runs without a lease" in result.stderr


def test_inside_a_tenant_the_command_joins_it(jupyter_vgpu):
    result = jupyter_vgpu("run", "--memory", "1GiB", "--", sys.executable, "-c", SHOW, VGPU_TOKEN="t", VGPU_LEASE="lease-1")
    assert result.returncode == 0, result.stderr
    environment = json.loads(result.stdout)[1]
    assert (environment["VGPU_TOKEN"], environment["VGPU_LEASE"]) == ("t", "lease-1")
    assert "joins the lease" in result.stderr


def test_command_keeps_pid_arguments_and_exit_status(clean_environment):
    code = "import os, sys; print(os.getpid(), sys.argv[1:]); sys.exit(7)"
    command = [sys.executable, "-m", "jupyter_vgpu", "run", "--best-effort", "--", sys.executable, "-c", code, "--memory", "x", "--"]
    with subprocess.Popen(command, env=clean_environment, stdout=subprocess.PIPE, text=True) as process:
        output = process.communicate(timeout=60)[0]
    assert output == f"{process.pid} ['--memory', 'x', '--']\n"
    assert process.returncode == 7


@pytest.mark.parametrize(("mode", "status"), [(None, 127), (0o644, 126)])
def test_command_that_cannot_run_has_the_shells_status(jupyter_vgpu, tmp_path, mode, status):
    command = tmp_path / "command"
    if mode is not None:
        command.write_text("#!/bin/sh\n")
        os.chmod(command, mode)
    result = jupyter_vgpu("run", "--", str(command))
    assert result.returncode == status
    assert str(command) in result.stderr
