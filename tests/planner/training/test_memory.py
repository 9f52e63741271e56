"""The memory of a plan's stages beside what PyTorch's MemTracker sees of the same layout, without any values."""

import pytest

from benchmarks.planner.foretold import captured, foretold
from benchmarks.planner.layout import Layout
from benchmarks.planner.memory import MOST_TOO_LOW, MemoryRow, misses
from benchmarks.planner.tracked import tracked_bytes
from headway.core.batching import at_batch
from headway.core.precision import Precision
from headway.planner.certify.training.memory import recount
from headway.planner.certify.training.step import PlannedStep
from tests.core.exports.plans import plan_of

GPT, LLAMA = "alpa-gpt3-350m-small", "llama-70b-small"
CLOSE = 0.05  # these models have few bytes of what grows, so that single numbers count

HALF = Precision.BFLOAT16
CASES = [
    (GPT, Layout(micro_batch=16)),
    (GPT, Layout(micro_batch=16, recomputes=True)),
    (GPT, Layout(micro_batch=16, precision=HALF)),
    (GPT, Layout(micro_batch=16, data=4)),
    (GPT, Layout(micro_batch=16, data=4, zero_stage=2, precision=HALF)),
    (GPT, Layout(micro_batch=16, data=4, zero_stage=3)),
    (GPT, Layout(micro_batch=16, data=2, tensor=2)),
    (LLAMA, Layout(micro_batch=16, data=4)),
    (LLAMA, Layout(micro_batch=16, tensor=2)),
]


@pytest.mark.parametrize(("model", "layout"), CASES, ids=str)
def test_what_is_foretold_is_held(model: str, layout: Layout) -> None:
    (stage,) = foretold(model, layout).stages
    assert stage.memory.total_bytes == pytest.approx(tracked_bytes(model, layout), rel=CLOSE)


@pytest.mark.parametrize(("model", "layout"), [*CASES, (LLAMA, Layout(micro_batch=16, data=4, zero_stage=3))], ids=str)
def test_the_certifier_counts_the_same(model: str, layout: Layout) -> None:
    graph = at_batch(captured(model, None), layout.micro_batch)
    plan = plan_of(graph, foretold(model, layout).stages, precision=layout.precision.value)
    said, found = plan.stages[0].memory, recount(PlannedStep(plan, graph), 0)
    for part in ("weights_bytes", "gradients_bytes", "optimizer_bytes", "activations_bytes", "workspace_bytes"):
        assert getattr(said, part) == pytest.approx(getattr(found, part), abs=0.02 * found.total_bytes), part


def test_misses_are_a_median_and_what_is_too_low() -> None:
    def row(foretold_bytes: int) -> MemoryRow:
        return MemoryRow(case="one", model="m", foretold_bytes=foretold_bytes, tracked_bytes=1000)

    assert misses([row(1000), row(1030), row(960)]) == []
    assert misses([row(1060), row(1060), row(1000)]) == ["The median error is 6.0%, not under 5%."]
    too_low = 1000 - int(1000 * MOST_TOO_LOW) - 10
    assert misses([row(1000), row(1000), row(too_low)]) == ["m, one: foretold 9.0% too low."]
