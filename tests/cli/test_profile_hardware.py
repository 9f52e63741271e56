"""`headway profile hardware` and times of models on it, without a stack."""

import json
from pathlib import Path

from tests.cli.conftest import Run

ONLY = ("--only", "dispatch", "--only", "stream_copy", "--ranks", "1")


def test_it_is_measured_kept_drawn_and_not_measured_again(headway: Run, tmp_path: Path) -> None:
    picture = tmp_path / "curves.png"
    first = headway("profile", "hardware", *ONLY, "--json", "--plot", str(picture))
    assert first.returncode == 0, first.stderr
    document = json.loads(first.stdout)
    assert {timing["cell"]["family"] for timing in document["timings"]} == {"dispatch", "stream_copy"}
    assert {"torch", "headway", "kernel"} <= set(document["machine"]["hardware"]["software"])
    assert picture.read_bytes().startswith(b"\x89PNG")
    again = json.loads(headway("profile", "hardware", *ONLY, "--json").stdout)
    assert again["timings"] == document["timings"]
    faulty = headway("profile", "model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "here")
    assert faulty.returncode == 1
    assert "not complete" in faulty.stderr


def test_faults_end_with_a_hint(headway: Run) -> None:
    for arguments, words in (
        (("hardware", "--only", "matmull"), "matmull"),
        (("hardware", "--device", "tpu"), "tpu"),
        (("model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "z9000"), "z9000"),
        (("model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "here"), "Nothing was measured here"),
    ):
        result = headway("profile", *arguments)
        assert result.returncode == 1, arguments
        assert words in result.stderr
        assert "hint:" in result.stderr
        assert "Traceback" not in result.stderr


def test_a_model_is_estimated_on_hardware_of_the_catalogue(headway: Run) -> None:
    result = headway("profile", "model", "zoo:gpt3-1b-small", "--capture-only", "--hardware", "h100-sxm", "--json")
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    assert document["hardware"] == "H100"
    assert document["provenance"] == "estimated"
    assert document["seconds"] > 0
