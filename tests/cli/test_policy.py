from __future__ import annotations

import re

from jupyter_vgpu.cli import main


def test_valid_file_is_said_to_be_valid_with_its_classes(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("default_class: small\nclasses:\n  small: {memory: 4GiB}\n")
    assert main(["policy", "check", str(file)]) == 0
    assert "valid; classes: small; default class: small" in capsys.readouterr().out


def test_wrong_value_is_reported_with_file_line_key_value_and_what_is_allowed(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("classes:\n  small:\n    memory: 4GiB\n    compute: 2\n")
    assert main(["policy", "check", str(file)]) == 1
    said = capsys.readouterr().err
    assert said.startswith(f"{file}:4: ")
    assert "classes.small.compute" in said
    assert "2" in said
    assert "0.01 to 1.0" in said


def test_mistyped_key_is_reported_with_its_line(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("classes:\n  small:\n    memroy: 4GiB\nqueue_timeout: soon\n")
    assert main(["policy", "check", str(file)]) == 1
    first, second = capsys.readouterr().err.splitlines()
    assert first.startswith(f"{file}:3: classes.small.memroy: ")
    assert second.startswith(f"{file}:4: queue_timeout: 'soon'")


def test_text_that_is_no_yaml_is_reported_with_its_line(tmp_path, capsys):
    file = tmp_path / "policy.yaml"
    file.write_text("classes:\n  small: {memory: 4GiB\n")
    assert main(["policy", "check", str(file)]) == 1
    assert re.match(rf"{re.escape(str(file))}:\d+: not YAML", capsys.readouterr().err)


def test_missing_file_and_binary_file_are_one_line(tmp_path, capsys):
    (tmp_path / "binary").write_bytes(b"a: \xff\n")
    assert main(["policy", "check", str(tmp_path / "missing")]) == 1
    assert main(["policy", "check", str(tmp_path / "binary")]) == 1
    said = capsys.readouterr().err
    assert "missing" in said
    assert "not UTF-8 at byte 3" in said
    assert "Traceback" not in said
