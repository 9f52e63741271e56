"""The interpreter that is to have vLLM, and what is said where it has none."""

import sys
from pathlib import Path

import pytest

from headway.cli.engine_choice import VLLM_PYTHON, find_vllm
from headway.core.errors import FailedPreconditionError


def test_one_that_is_not_there_is_named(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv(VLLM_PYTHON, str(tmp_path / "python"))
    with pytest.raises(FailedPreconditionError, match=r"not installed: there is no .*/python") as refused:
        find_vllm()
    assert (refused.value.field, VLLM_PYTHON in refused.value.hint) == ("--engine", True)


def test_one_without_vllm_says_so_once(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(VLLM_PYTHON, sys.executable)
    with pytest.raises(FailedPreconditionError, match=r"cannot run it: vLLM is not installed") as refused:
        find_vllm()
    assert str(refused.value).count("make vllm") == 1


def test_one_with_another_version_names_both(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    package = tmp_path / "vllm-0.31.2.dist-info"
    package.mkdir()
    (package / "METADATA").write_text("Metadata-Version: 2.1\nName: vllm\nVersion: 0.31.2\n")
    python = tmp_path / "python"
    python.write_text(f'#!/bin/sh\nPYTHONPATH={tmp_path} exec {sys.executable} "$@"\n')
    python.chmod(0o755)
    monkeypatch.setenv(VLLM_PYTHON, str(python))
    with pytest.raises(FailedPreconditionError, match=r"vLLM 0\.31\.2 is installed, and Headway drives 0\.32"):
        find_vllm()
