from __future__ import annotations

import json
import os

import pytest
from jupyter_client.kernelspec import KernelSpec
from jupyter_vgpu_provisioner.request import NOTEBOOK_MAXIMUM, asked, asked_by_notebook, lease_request, runs_python


def notebook(path, metadata, *, padding=0):
    path.write_text(json.dumps({"cells": [], "metadata": metadata, "nbformat": 4, "nbformat_minor": 5, "padding": " " * padding}))
    return str(path)


@pytest.mark.parametrize(
    "metadata", [None, [], {}, {"vgpu": None}, {"vgpu": "8GiB"}, {"vgpu": {"memory": {"a": 1}, "share": True, "strict": False}}]
)
def test_metadata_of_another_shape_asks_for_nothing(metadata):
    assert asked(metadata) == {}


def test_metadata_may_ask_for_what_the_policy_can_grant_and_nothing_else():
    assert asked({"vgpu": {"memory": "8GiB", "compute": 0.25, "class": "small", "visible_devices": "0", "kernel_id": "x"}}) == {
        "memory": "8GiB",
        "compute": 0.25,
        "class": "small",
    }


def test_notebook_file_is_asked(tmp_path):
    assert asked_by_notebook(notebook(tmp_path / "a.ipynb", {"vgpu": {"share": 0.5}})) == {"share": 0.5}


def test_notebook_file_that_is_too_large_is_not_read(tmp_path):
    assert asked_by_notebook(notebook(tmp_path / "a.ipynb", {"vgpu": {"share": 0.5}}, padding=NOTEBOOK_MAXIMUM)) == {}


@pytest.mark.parametrize("content", [b"", b"[]", b"{", b"\xff\xfe", b"[" * 100_000, b'{"metadata": 7}'])
def test_file_that_is_no_notebook_asks_for_nothing(tmp_path, content):
    path = tmp_path / "a.ipynb"
    path.write_bytes(content)
    assert asked_by_notebook(str(path)) == {}


def test_pipe_named_as_a_notebook_does_not_hold_the_start(tmp_path):
    os.mkfifo(tmp_path / "a.ipynb")
    assert asked_by_notebook(str(tmp_path / "a.ipynb")) == {}


@pytest.mark.parametrize("path", [None, "", "RTC:notebook.ipynb", "notebook.ipynb", "/etc/passwd", "/no/such/file.ipynb"])
def test_name_that_leads_nowhere_asks_for_nothing(path):
    assert asked_by_notebook(path) == {}


def test_notebooks_wish_replaces_the_kernelspecs_as_a_whole(tmp_path):
    path = notebook(tmp_path / "train.ipynb", {"vgpu": {"share": 0.5}})
    spec = KernelSpec(display_name="Python", metadata={"vgpu": {"memory": "4GiB"}})
    request = lease_request(kernel_id="k", kernel_spec=spec, environ={"JPY_SESSION_NAME": path, "CUDA_VISIBLE_DEVICES": "1"})
    assert request == {"kernel_id": "k", "name": "train.ipynb", "path": path, "visible_devices": "1", "share": 0.5}


def test_without_a_notebook_the_kernelspec_is_asked_and_names_the_lease():
    spec = KernelSpec(display_name="Python 3", metadata={"vgpu": {"class": "small"}})
    request = lease_request(kernel_id="k", kernel_spec=spec, environ={})
    assert (request["name"], request["path"], request["class"]) == ("Python 3", None, "small")


@pytest.mark.parametrize(
    ("language", "argv", "expected"),
    [
        ("python", ["x"], True),
        ("Python 3", [], True),
        ("", ["/env/bin/python3.9", "-m"], True),
        ("R", ["R"], False),
        ("julia", ["python"], False),
    ],
)
def test_only_python_kernels_get_the_startup_file(language, argv, expected):
    assert runs_python(KernelSpec(language=language, argv=argv)) is expected
