"""The native thread, in C++ and from Python, and the pages that it writes."""

from __future__ import annotations

import os
import select
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from jupyter_vgpu.native import control, protocol
from jupyter_vgpu.native.control import ControlPage, InvalidPage
from jupyter_vgpu.native.scheduler import Scheduler

NATIVE = Path(__file__).resolve().parents[2] / "native"


@pytest.mark.parametrize("sanitizer", ["address,undefined", "thread"])
def test_the_c_unit_test_passes_under_sanitizers(tmp_path, sanitizer):
    compiler = os.environ.get("CXX") or shutil.which("c++") or shutil.which("g++")
    assert compiler, "no C++ compiler; install one (apt-get install g++)"
    sources = [NATIVE / "scheduler" / name for name in ("test_scheduler.cpp", "scheduler.cpp", "watchlist.cpp")]
    program = tmp_path / "test"
    flags = ["-std=c++17", "-g", "-Wall", "-Wextra", "-Werror", f"-fsanitize={sanitizer}"]
    includes = ["-I", NATIVE / "include", "-I", NATIVE / "scheduler"]
    subprocess.run([compiler, *flags, *includes, *sources, "-o", program, "-lpthread"], check=True)
    subprocess.run([program], check=True, timeout=60)


@pytest.fixture
def scheduler():
    scheduler = Scheduler()
    yield scheduler
    scheduler.close()


@pytest.fixture
def page():
    page = ControlPage.create("test")
    yield page
    page.close()


@pytest.fixture
def child():
    process = subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE)
    descriptor = os.pidfd_open(process.pid)
    yield process, descriptor
    process.kill()
    process.wait()
    process.stdin.close()
    os.close(descriptor)


def test_a_death_frees_the_slot_before_python_hears_of_it(scheduler, page, child):
    process, descriptor = child
    page.occupy(5, process.pid)
    page.set_residual(5, 3, 77)
    scheduler.watch(1, descriptor, page=page, slot=5)
    assert scheduler.take() == []
    process.kill()
    assert select.select([scheduler.event_descriptor], [], [], 0.1)[0]
    assert page.pointer.process[5].pid == 0 and page.usage(5, 3).total == 0
    assert scheduler.take() == [1]
    assert scheduler.take() == []


def test_a_key_is_watched_once(scheduler, child):
    scheduler.watch(1, child[1])
    with pytest.raises(FileExistsError):
        scheduler.watch(1, child[1])
    scheduler.unwatch(1)
    scheduler.unwatch(1)
    scheduler.watch(1, child[1])


def test_a_page_is_taken_back_only_as_the_one_it_was(page, tmp_path):
    expected = page.identity
    with_changes = os.dup(page.descriptor)
    again = ControlPage.take_back(with_changes, expected=expected)
    assert again.pointer.magic == control.MAGIC
    again.close()
    other = ControlPage.create("other")
    with pytest.raises(InvalidPage, match="not the control page"):
        ControlPage.take_back(other.descriptor, expected=expected)
    other.close()


@pytest.mark.parametrize(
    ("size", "seals", "match"),
    [(control.SIZE - 1, True, "bytes"), (control.SIZE, False, "sealed"), (control.SIZE, True, "magic")],
)
def test_what_is_no_page_is_refused_with_the_reason(size, seals, match):
    import fcntl

    descriptor = os.memfd_create("forged", os.MFD_ALLOW_SEALING)
    os.ftruncate(descriptor, size)
    if seals:
        fcntl.fcntl(descriptor, fcntl.F_ADD_SEALS, fcntl.F_SEAL_SHRINK | fcntl.F_SEAL_GROW | fcntl.F_SEAL_SEAL)
    with pytest.raises(InvalidPage, match=match):
        ControlPage.take_back(descriptor, expected=control.identity(descriptor))
    os.close(descriptor)


def test_a_plain_file_is_no_page(tmp_path):
    with open(tmp_path / "file", "w+b") as file:
        file.truncate(control.SIZE)
        with pytest.raises(InvalidPage, match="no memfd|sealed"):
            ControlPage.take_back(file.fileno(), expected=control.identity(file.fileno()))


def test_packets_are_what_the_header_says():
    request = protocol.Request(op=3, id=2**64 - 1, flags=1, device=15, slot=255, bytes=2**64 - 1, token=b"t" * protocol.TOKEN_LENGTH)
    assert protocol.unpack_request(protocol.pack_request(request)) == request
    reply = protocol.Reply(op=1, id=7, status=4, slot=9, reason="voll — " * 100)
    back = protocol.unpack_reply(protocol.pack_reply(reply))
    assert reply.reason.startswith(back.reason) and len(back.reason.encode()) < protocol.REASON_LENGTH
    with pytest.raises(ValueError, match="token"):
        protocol.pack_request(protocol.Request(op=1, id=1, token=b"t" * (protocol.TOKEN_LENGTH + 1)))
