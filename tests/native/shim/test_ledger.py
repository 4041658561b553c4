"""The ledger as a property: 0 <= used <= limit is what anybody is shown, whatever mix of threads, forks, resizes and kills."""

from __future__ import annotations

import os
import signal
import struct
import tempfile
from pathlib import Path

from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from tests.native.shim.conftest import MIB, Tenant
from tests.native.shim.fake_arbiter import FakeArbiter
from tests.waiting import until

OK, INVALID_VALUE, OUT_OF_MEMORY = 0, 1, 2

STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("alloc"), st.integers(1, 700 * MIB), st.integers(0, 7)),
        st.tuples(st.just("free"), st.integers(0, 7)),
        st.tuples(st.just("limit"), st.integers(1, 2048 * MIB)),
        st.tuples(st.just("residual"), st.integers(0, 800 * MIB)),
        st.tuples(st.just("churn"), st.integers(1, 4), st.integers(1, 60), st.integers(0, 1000)),
        st.tuples(st.just("fork")),
        st.tuples(st.just("kill")),
    ),
    max_size=20,
)


@settings(max_examples=25, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(steps=STEPS)
def test_used_stays_between_zero_and_the_limit_in_everything_shown(built, steps):
    with tempfile.TemporaryDirectory(prefix="vs") as path:
        arbiter = FakeArbiter(Path(path), limits=(1024 * MIB,))
        tenant = Tenant(built, built.environment(arbiter))
        try:
            check(arbiter, tenant, steps)
        finally:
            for pid in {arbiter.page.control.process[i].pid for i in range(arbiter.page.control.process_high_water)} - {0}:
                os.kill(pid, signal.SIGKILL)
            tenant.process.kill()
            tenant.process.wait()
            until(lambda: arbiter.page.used() == 0)
            arbiter.close()
            for pipe in (tenant.process.stdin, tenant.process.stdout, tenant.process.stderr):
                pipe.close()


def wait_for_zero(struct, field):
    until(lambda: getattr(struct, field) == 0)


def check(arbiter, tenant, steps):
    assert tenant("init", 0) == OK
    assert tenant("context", 0)[0] == OK
    held: dict[int, int] = {}
    slot, depth = 0, 0
    for step in steps:
        limit = arbiter.page.control.device[0].memory_limit
        if step[0] == "alloc" and step[2] not in held:
            before = arbiter.page.bytes()
            result = tenant(*step)
            assert result == (OK if before + step[1] <= limit else OUT_OF_MEMORY)
            if result == OK:
                held[step[2]] = step[1]
        elif step[0] == "free" and step[1] in held:
            assert tenant(*step) == OK
            del held[step[1]]
        elif step[0] == "limit":
            arbiter.page.control.device[0].memory_limit = step[1]
        elif step[0] == "residual":
            arbiter.page.slot(slot).residual = step[1]
        elif step[0] == "churn":
            assert tenant(*step) == 0
        elif step[0] == "fork" and depth < 2:
            tenant("fork")
            assert tenant("init", 0) == OK
            slot = until(lambda: max(i for i in range(4) if arbiter.page.control.process[i].pid))
            held, depth = {}, depth + 1
        elif step[0] == "kill" and depth:
            os.kill(arbiter.page.control.process[slot].pid, signal.SIGKILL)
            assert tenant.text() == str(int(signal.SIGKILL))
            wait_for_zero(arbiter.page.control.process[slot], "pid")
            return  # what the parent holds is not this model's to know
        wait_for_zero(arbiter.page.slot(slot), "granted")  # a COMMIT may be on its way
        result, available, total = tenant("info")
        limit = arbiter.page.control.device[0].memory_limit
        assert result == OK and total == limit and available == limit - min(limit, arbiter.page.bytes())
        assert arbiter.page.slot(slot).used == sum(held.values())


def start_group(tenants, arbiter, *, first_rounds=1500, **env):
    group = [tenants(arbiter, **env) for _ in range(6)]
    for tenant in group:
        assert tenant("init", 0) == OK
        assert tenant("context", 0)[0] == OK
    for seed, tenant in enumerate(group):
        tenant.send("churn", 3, first_rounds if seed == 0 else 1500, seed)
    return group


def test_processes_with_threads_are_never_given_more_than_the_limit_together(tenants, arbiters, tmp_path):
    """The driver's own book, shared by all processes, is the witness. The limit is low, so that even one alone meets it."""
    arbiter = arbiters(limits=(256 * MIB,))
    book = tmp_path / "book"
    book.write_bytes(bytes(16))
    for tenant in start_group(tenants, arbiter, STUB_BOOK=str(book)):
        assert tenant.text() == "0"
    now, most = struct.unpack("QQ", book.read_bytes())
    assert now == 0 and 128 * MIB < most <= 256 * MIB
    assert arbiter.asked("reserve")
    until(lambda: arbiter.page.bytes() == 0)


def test_process_killed_in_the_middle_leaves_nothing_in_the_books(tenants, arbiter):
    group = start_group(tenants, arbiter, first_rounds=10**9)
    until(lambda: arbiter.page.slot(0).used > 0)
    os.kill(group[0].pid, signal.SIGKILL)
    for tenant in group[1:]:
        assert tenant.text() == "0"
    until(lambda: arbiter.page.bytes() == 0)
    assert group[1]("alloc", 1024 * MIB, 0) == OK
