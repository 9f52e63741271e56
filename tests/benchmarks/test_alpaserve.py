"""Cases of the artifact's format: read, run, and written so that others can read them."""

import json
from pathlib import Path

import numpy as np
import orjson
import pytest
from typer.testing import CliRunner

import benchmarks.alpaserve.__main__ as command
from benchmarks.alpaserve.case import Case, as_document, as_placement, read_cases, read_profiles
from benchmarks.alpaserve.generated import QUALITY, make_case
from benchmarks.alpaserve.measurement import largest_difference, replication
from headway.core.errors import InvalidArgumentError
from headway.planner.placement.simulator import Rules, attainment
from tests.reference.arrivals import PROFILES, write_traces


@pytest.fixture(scope="module")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> list[Case]:
    return read_cases(write_traces(tmp_path_factory.mktemp("recorded")))


def write_case(directory: Path, **fields: object) -> Path:
    """Two models on two devices, with a null SLO and one of a second."""
    config = {
        f"pp{pp}_op1": {
            "pp": pp,
            "op": 1,
            "weight_mem_bytes": [8.0 / pp] * pp,
            "batch": {"1": {"stage_latency_s": [0.4 / pp] * pp, "act_mem_bytes": [1.0] * pp}},
            "layers_per_stage": None,
        }
        for pp in (1, 2)
    }
    (directory / "p.json").write_text(json.dumps({"meta": {"source": "test"}, "models": {"tiny": {"configs": config}}}))
    rng = np.random.default_rng(0)
    for name in ("test", "train"):
        times = np.cumsum(rng.exponential(0.4, 300))
        rows = [f"{at_s},m{index % 2},{'inf' if index % 2 else 1.0}" for index, at_s in enumerate(times)]
        (directory / f"{name}.csv").write_text("\n".join(["time_s,model,slo_s", *rows]))
    case = {
        "id": "two",
        "cluster": {"num_devices": 2, "mem_budget_bytes": 8, "num_devices_per_node": 2},
        "models": [{"name": f"m{index}", "type": "tiny"} for index in range(2)],
        "trace": "test.csv",
        "train_trace": "train.csv",
        **fields,
    }
    path = directory / "cases.json"
    path.write_text(json.dumps({"meta": {"profiles": "p.json"}, "cases": [case]}))
    return path


def test_unseen_cases_are_run_and_their_placements_can_be_read_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("benchmarks.alpaserve.measurement.LONG", 1)
    path, out = write_case(tmp_path), tmp_path / "out.json"
    app = command.typer.Typer()
    app.command()(command.main)
    result = CliRunner().invoke(app, ["--cases", str(path), "--out", str(out)])
    assert result.exit_code == 0, result.output
    (row,) = orjson.loads(out.read_bytes())["rows"]
    (case,) = read_cases(path)
    placement = as_placement(row["placement"], case.models)
    assert row["case"] == "two"
    assert row["attainment_heldout"] == attainment(case.models, placement, case.test, Rules.ARTIFACT)
    assert row["attainment_searched"] == attainment(case.models, placement, case.train, Rules.ARTIFACT)
    assert placement.groups[0].shape.pp == 2  # of both models in one pipeline
    assert as_document(placement, case.models) == row["placement"]
    assert row["search_s"] > 0
    assert row["selective_heldout"] >= row["uniform_heldout"]


def test_what_is_missing_is_named(tmp_path: Path) -> None:
    with pytest.raises(InvalidArgumentError, match=r"There is no .*gone\.csv"):
        read_cases(write_case(tmp_path, trace="gone.csv"))
    with pytest.raises(InvalidArgumentError, match="no profile of 'other'"):
        read_cases(write_case(tmp_path, models=[{"name": "m0", "type": "other"}]))
    with pytest.raises(InvalidArgumentError, match="requests for 'm1', which is no model"):
        read_cases(write_case(tmp_path, models=[{"name": "m0", "type": "tiny"}]))


def test_recorded_cases_are_re_evaluated_to_the_recorded_attainment(recorded: list[Case]) -> None:
    for case in recorded:
        assert largest_difference(case) <= 1e-12


def test_selective_replication_does_not_lose_to_uniform_replication(recorded: list[Case]) -> None:
    case = next(each for each in recorded if each.name.startswith("b2"))
    selective, uniform = replication(case)
    assert selective >= uniform


def test_a_generated_case_has_its_rates() -> None:
    recipe = QUALITY[1]
    case = make_case(recipe, read_profiles(PROFILES))
    assert len(case.test) / recipe.duration_s == pytest.approx(recipe.rate, rel=0.1)
    assert len(case.models) == recipe.num_models
    counts = np.bincount(case.test.model)
    assert counts[0] / counts[-1] == pytest.approx(recipe.num_models**recipe.skew, rel=0.5)
