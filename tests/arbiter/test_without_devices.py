"""Where there is nothing to share: the arbiter serves an empty pool and says why."""

from __future__ import annotations

import pytest

from jupyter_vgpu.arbiter import process
from jupyter_vgpu.arbiter.client import ArbiterUnavailable
from jupyter_vgpu.devices import DevicesUnavailable
from tests.arbiter import contract


@pytest.mark.parametrize("kind", ["nvidia", "simulated"])
def test_an_nvml_that_does_not_answer_is_a_reason_and_no_failure(monkeypatch, kind):
    def broken():
        raise DevicesUnavailable("NVML: the NVIDIA driver is not loaded")

    monkeypatch.setattr(process, "choose", lambda environ: kind)
    monkeypatch.setattr(process, "Nvml", broken)
    assert process.find_backend({}) == (None, "NVML: the NVIDIA driver is not loaded", kind == "simulated")


@pytest.fixture
def empty(make_arbiter):
    arbiter = make_arbiter()
    arbiter.environ["VGPU_TEST_UNAVAILABLE"] = "no device, says the test"
    return arbiter.start()


def test_the_pool_is_empty_and_says_why(empty):
    status, pool = contract.ask(empty.socket, "GET", "/pool")
    assert (status, pool["devices"], pool["leases"]) == (200, [], [])
    assert pool["message"] == "no device, says the test"
    assert contract.ask(empty.socket, "GET", "/leases") == (200, [])


def test_a_lease_is_unavailable_with_the_same_reason(empty):
    status, error = contract.ask(empty.socket, "POST", "/leases", {"name": "n"})
    assert (status, error["error"]["code"], error["error"]["message"]) == (503, "unavailable", "no device, says the test")
    with pytest.raises(ArbiterUnavailable, match="no device, says the test"):
        empty.client.create_lease(name="n")
