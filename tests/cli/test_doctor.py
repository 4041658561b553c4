from __future__ import annotations

import json

import pytest

from jupyter_vgpu.cli import checks, main
from jupyter_vgpu.cli.checks import Check
from tests.cli.conftest import pool


def test_every_aspect_has_an_answer_whatever_else_fails(arbiter, clean_environment, capsys):
    main(["doctor", "--json"])
    answers = json.loads(capsys.readouterr().out)
    names = {
        "versions",
        "native part",
        "capabilities",
        "driver",
        "link directory",
        "shim",
        "provisioner",
        "tenancy",
        "arbiter",
        "locks",
        "policy",
    }
    assert {answer["name"] for answer in answers} == names
    assert {answer["status"] for answer in answers} <= {"ok", "warn", "fail"}


@pytest.mark.parametrize(("status", "expected"), [("ok", 0), ("warn", 0), ("fail", 1)])
def test_exit_status_is_1_only_for_a_failure_and_advice_is_shown(status, expected, monkeypatch, capsys):
    monkeypatch.setattr(checks, "all_checks", lambda environ: [Check("driver", status, "found", "do this")])
    assert main(["doctor"]) == expected
    assert "-> do this" in capsys.readouterr().out


def test_device_of_another_arbiter_is_named_and_the_host_service_advised(arbiter, clean_environment):
    arbiter.snapshot["devices"][0]["managed_by"] = "pid 123 of bob"
    locks = next(check for check in checks.pool_checks(clean_environment) if check.name == "locks")
    assert locks.status == "warn"
    assert "pid 123 of bob" in locks.detail
    assert "--host" in locks.advice


def test_policy_that_is_not_in_force_is_a_warning_with_its_error(arbiter, clean_environment):
    arbiter.snapshot.update(pool(policy={"source": "p.yaml", "revision": 1, "error": "p.yaml:4: memroy", "policy": {}}))
    policy = next(check for check in checks.pool_checks(clean_environment) if check.name == "policy")
    assert (policy.status, policy.detail) == ("warn", "p.yaml:4: memroy")


def test_check_that_raises_is_a_failure_with_the_reason(arbiter, clean_environment, monkeypatch):
    def broken(environ):
        raise OSError("nothing there")

    monkeypatch.setitem(checks._CHECKS, "shim", broken)
    assert Check("shim", "fail", "nothing there") in checks.all_checks(clean_environment)


def test_other_default_provisioner_is_a_warning(clean_environment):
    check = checks.provisioner({**clean_environment, "JUPYTER_DEFAULT_PROVISIONER_NAME": "local-provisioner"})
    assert check.status == "warn"
    assert "local-provisioner" in check.detail
