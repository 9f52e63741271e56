"""What the rows of the benchmark of backends come to."""

from pathlib import Path

import pytest

import benchmarks.figure
from benchmarks.backends.drawing import draw
from benchmarks.backends.row import CHOICE, LOOSE_CHOICE, Lap, Row, targets


def lap(seconds: float) -> Lap:
    return Lap(seconds=seconds, least_s=seconds, num_runs=20, num_contended=1, deviation=0.0)


def row(**seconds: float) -> Row:
    named = {{"choice": CHOICE, "loose": LOOSE_CHOICE}.get(name, name): lap(each) for name, each in seconds.items()}
    return Row(
        network="n",
        num_threads=1,
        date="",
        load_average=0.0,
        contest=named,
        predicted_s=1.1,
        op_level_s=1.0,
        ablation={"eager": 4.0, "openvino": 1.0},
        search_s=6.0,
    )


def test_figures_stand_beside_what_is_wanted() -> None:
    rows = [row(eager=8.0, inductor=2.0, openvino=1.0, choice=1.0, loose=0.5), row(eager=2.0, openvino=1.0, choice=1.0)]
    found = {each.what: each for each in targets(rows)}
    eager, inductor = (found[f"geometric mean over {name}"] for name in ("eager", "inductor"))
    assert eager.figure == pytest.approx(4.0)
    assert inductor.figure == pytest.approx(2.0)  # of the rows in which it ran
    assert "geometric mean over onnxruntime" not in found
    assert found["geometric mean within 1e-2 over the best in float32"].figure == pytest.approx(2.0)
    assert found["the choice over the best single backend, worst"].figure == pytest.approx(1.0)
    assert found["predicted over measured whole, median error"].figure == pytest.approx(0.1)
    longest = found["seconds of a search with everything measured, longest"]
    assert (longest.figure, longest.is_met) == (6.0, False)


def test_it_is_drawn_also_with_rows_in_which_a_backend_did_not_run(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    path = draw([row(eager=2.0, openvino=1.0, choice=1.0), row(eager=2.0, choice=1.0)])
    assert path.is_relative_to(benchmarks.figure.FIGURES_DIR)
    assert path.stat().st_size > 0
