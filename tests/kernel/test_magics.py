"""%vgpu: what it asks the arbiter, what it shows, what it says when something is wrong."""

from __future__ import annotations

import importlib.util
import socket
import sys

import pytest
from IPython.core.error import UsageError

from jupyter_vgpu.native.environment import STARTUP
from tests.kernel.fake_arbiter import GIB, TOKEN, UUID, new_lease

_spec = importlib.util.spec_from_file_location("magics_under_test", STARTUP.parent / "magics.py")
magics = importlib.util.module_from_spec(_spec)
_spec.loader.exec_module(magics)


@pytest.fixture
def tenant(arbiter, monkeypatch):
    monkeypatch.setenv("VGPU_SOCKET", arbiter.server_address)
    monkeypatch.setenv("VGPU_TOKEN", TOKEN)
    return arbiter


@pytest.mark.parametrize(
    ("line", "change"),
    [
        ("", {}),
        ("0.5", {"share": 0.5}),
        ("50%", {"share": "50%"}),
        ("memory=8GiB compute=0.25", {"memory": "8GiB", "compute": 0.25}),
        ("memory = 8 GiB  compute= 0.25", {"memory": "8 GiB", "compute": 0.25}),
        ("class=small", {"class": "small"}),
        ("compute_cap=none", {"compute_cap": None}),
        ("compute_cap=0.5 priority=batch", {"compute_cap": 0.5, "priority": "batch"}),
        ("compute=much", {"compute": "much"}),
    ],
)
def test_line_becomes_the_change_that_it_asks_for(line, change):
    assert magics.parse_change(line) == change


@pytest.mark.parametrize("line", ["memory=", "=8GiB", "0.5 0.6", "memory=8GiB memory=9GiB"])
def test_line_that_is_no_change_is_refused_with_the_word_and_what_to_write(line):
    with pytest.raises(ValueError, match="write|twice"):
        magics.parse_change(line)


def test_change_is_sent_and_the_new_lease_shown(tenant, capsys):
    magics.vgpu("memory=8GiB compute=0.25")
    assert tenant.requests[0] == ("PATCH", "/vgpu/api/leases/self", {"memory": "8GiB", "compute": 0.25})
    shown = capsys.readouterr().out
    assert "512 MiB used of 8 GiB" in shown
    assert "25% of the device" in shown


def test_refusal_is_the_arbiters_sentence_without_a_traceback(tenant):
    with pytest.raises(UsageError, match=r"^memory: '999TiB' is not allowed; allowed: at most 16 GiB$"):
        magics.vgpu("memory=999TiB")


def test_table_names_device_memory_share_state_and_message():
    lease = new_lease()
    lease.update(state="queued", queue_position=2, message="waits for 4 GiB", **{"class": "small"})
    lease["parts"][0].update(compute=0.25, compute_cap=0.5, memory_guarantee=GIB)
    table = magics.describe(lease, {UUID: {"name": "Test <GPU>"}})
    text, page = repr(table), table._repr_html_()
    memory, compute = "512 MiB used of 16 GiB, 1 GiB guaranteed", "25% of the device, never more than 50%"
    for expected in (UUID, memory, compute, "queued, position 2", "small"):
        assert expected in text
        assert expected in page
    assert "waits for 4 GiB" in text
    assert "Test &lt;GPU&gt;" in page


@pytest.mark.parametrize(("state", "shown"), [("idle", "active"), ("active", "active"), ("starting", "starting")])
def test_a_kernel_that_runs_a_cell_is_never_shown_as_idle(state, shown):
    lease = new_lease()
    lease.update(state=state)
    assert dict(magics.describe(lease, {}).rows)["State"] == shown


def test_outside_of_a_tenant_it_says_so_and_what_to_do(monkeypatch, capsys):
    monkeypatch.delenv("VGPU_TOKEN", raising=False)
    magics.vgpu("")
    assert "not managed by jupyter-vgpu" in capsys.readouterr().out
    with pytest.raises(UsageError, match="kernelspec install"):
        magics.vgpu("0.5")


def test_absent_arbiter_is_named_and_the_quota_said_to_hold(monkeypatch, short_path):
    monkeypatch.setenv("VGPU_SOCKET", str(short_path / "gone.sock"))
    monkeypatch.setenv("VGPU_TOKEN", TOKEN)
    with pytest.raises(UsageError, match=r"gone\.sock.*stays in force"):
        magics.vgpu("")


def test_silent_arbiter_ends_the_cell_within_the_bound(monkeypatch, short_path):
    monkeypatch.setattr(magics, "TIMEOUT", 0.1)
    with socket.socket(socket.AF_UNIX) as silent:
        silent.bind(str(short_path / "silent.sock"))
        silent.listen()
        monkeypatch.setenv("VGPU_SOCKET", str(short_path / "silent.sock"))
        monkeypatch.setenv("VGPU_TOKEN", TOKEN)
        with pytest.raises(UsageError, match="does not answer"):
            magics.vgpu("")


def test_help_refusal_and_html_in_a_real_kernel(start_kernel, kernel_environment):
    kernel = start_kernel(sys.executable, kernel_environment)
    reply = kernel.client.execute("%vgpu?", reply=True, timeout=60)
    assert "%vgpu memory=8GiB" in str(reply["content"]["payload"])
    status, outputs = kernel.run("%vgpu memory=999TiB")
    assert status == "error"
    assert outputs == [{"name": "stderr", "text": "UsageError: memory: '999TiB' is not allowed; allowed: at most 16 GiB\n"}]
    status, outputs = kernel.run("%vgpu 0.5")
    assert status == "ok"
    assert set(outputs[0]["data"]) == {"text/plain", "text/html"}
    assert "8 GiB" in outputs[0]["data"]["text/html"]
