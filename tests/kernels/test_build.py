"""Compiling the CPU kernels."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from headway.core.errors import FailedPreconditionError
from headway.kernels import build as build_module
from headway.kernels import variants
from headway.kernels.build import build, find_compiler, is_current
from headway.kernels.variants import build_stamp, isa_flags


def test_what_is_up_to_date_is_left_alone() -> None:
    assert build() == []


def test_a_changed_source_makes_the_library_stale(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    for source in variants.SOURCES.iterdir():
        (tmp_path / source.name).write_bytes(source.read_bytes())
    monkeypatch.setattr(variants, "SOURCES", tmp_path)
    assert is_current("portable")
    (tmp_path / "norm.cpp").write_text("// changed")
    assert not is_current("portable")


def test_each_variant_has_its_own_stamp() -> None:
    assert len({build_stamp(isa) for isa in isa_flags()}) == len(isa_flags())


def test_without_a_compiler_the_error_says_what_to_install() -> None:
    result = subprocess.run(
        [sys.executable, "-c", "from headway.kernels.build import find_compiler; find_compiler()"],
        env={**os.environ, "PATH": "/nonexistent", "CXX": ""},
        capture_output=True,
        text=True,
        check=False,
        timeout=120,
    )
    assert "No C++ compiler found" in result.stderr
    assert "apt-get install g++" in result.stderr


def test_cxx_chooses_the_compiler(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CXX", "no-such-compiler")
    with pytest.raises(FailedPreconditionError, match="no-such-compiler"):
        find_compiler()


def test_a_failing_compiler_is_reported_and_leaves_nothing(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    (tmp_path / "broken.cpp").write_text("this is not C++")
    monkeypatch.setattr(build_module, "SOURCES", tmp_path)
    monkeypatch.setattr(build_module, "library_path", lambda isa: tmp_path / f"{isa}.so")
    with pytest.raises(FailedPreconditionError, match=r"broken\.cpp"):
        build()
    assert not list(tmp_path.glob("*.so"))
