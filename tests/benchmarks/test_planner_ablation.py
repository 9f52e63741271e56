"""The ablation of training plans on a small model: no smaller space has a better plan."""

from benchmarks.planner.ablation import FULL, INTER, NAIVE, Case, case_rows
from headway.core.precision import Precision
from tests.planner.training.steps import mlp


def test_nothing_is_faster_than_the_full_search_and_rows_say_what_does_not_fit() -> None:
    case = Case(
        name="MLP on 4",
        source="",
        cluster="2x2xV100-16",
        batch=1 << 12,
        precision=Precision.FLOAT32,
        methods=INTER,
        micro_batches=(8,),
    )
    rows = {row.method: row for row in case_rows(case, mlp())}
    assert set(rows) - {NAIVE} == {FULL, *INTER}
    full_s = rows[FULL].iteration_s
    assert full_s is not None
    for row in rows.values():
        if row.method != "equal-operator":  # its layers are others
            assert row.iteration_s is None or row.iteration_s >= full_s * (1 - 1e-9)
        assert row.layout
