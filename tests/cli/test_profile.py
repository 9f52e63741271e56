"""`headway profile`, as far as it needs no stack."""

import json
import os
from pathlib import Path

import pytest

from tests.cli.conftest import Run
from tests.command import run_headway


def test_the_catalogue_is_listed_with_its_sources(headway: Run) -> None:
    result = headway("profile", "catalogue")
    assert result.returncode == 0, result.stderr
    for name in ("V100-16", "MI300X", "NVLink 4", "InfiniBand NDR", "DGX H200", "data sheet"):
        assert name in result.stdout


def test_one_entry_tells_where_each_figure_is_from(headway: Run) -> None:
    result = headway("profile", "catalogue", "H200")
    assert result.returncode == 0, result.stderr
    assert "989 TFLOP/s" in result.stdout
    for origin in ("imported", "estimated", "measured"):
        assert origin in result.stdout
    document = json.loads(headway("profile", "catalogue", "H200", "--json").stdout)
    assert list(document["devices"]) == ["H200"]
    bandwidth = document["devices"]["H200"]["bandwidth"]
    assert bandwidth == {
        "value": 4.8e12,
        "source": "NVIDIA H200 data sheet (SXM)",
        "provenance": "imported",
        "relative_error": 0.0,
    }


def test_the_users_file_is_laid_over_it_and_a_fault_in_it_is_told(
    headway: Run, checkpoint: Path, tmp_path: Path
) -> None:
    path = tmp_path / "mine.yaml"
    path.write_text('links:\n  Ethernet 10: {bandwidth: {value: 9 Gbit/s, source: "our switch"}}\n')
    result = headway("profile", "catalogue", "Ethernet 10", "--catalogue", str(path))
    assert "our switch" in result.stdout
    path.write_text("links:\n  Ethernet 10: {bandwidth: 9 apples}\n")
    for command in (("profile", "catalogue"), ("up", "--model", str(checkpoint))):
        result = headway(*command, "--catalogue", str(path))
        assert result.returncode == 1
        assert "mine.yaml, line 2: links.Ethernet 10.bandwidth" in result.stderr
        assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    "arguments", [("catalogue", "Z80"), ("import", "missing.json"), ("export", "1234"), ("import", ".")], ids=" ".join
)
def test_faults_are_told_in_a_sentence_with_a_hint(headway: Run, arguments: tuple[str, ...]) -> None:
    result = headway("profile", *arguments)
    assert result.returncode == 1
    assert result.stderr.startswith("error: ")
    assert "hint: " in result.stderr
    assert "Traceback" not in result.stderr


@pytest.mark.parametrize(
    ("words", "at", "expected"),
    [
        ("profile catalogue H", 3, {"H100", "H100-96", "H200"}),
        ("profile import x --hardware V", 5, {"V100-16", "V100-32"}),
    ],
)
def test_shells_complete_names_of_the_catalogue(words: str, at: int, expected: set[str]) -> None:
    asked = {"_HEADWAY_COMPLETE": "complete_bash", "COMP_WORDS": f"headway {words}", "COMP_CWORD": str(at)}
    result = run_headway(environment=os.environ | asked)
    assert result.returncode == 0, result.stderr
    assert set(result.stdout.split()) == expected
