"""Explanations say what limits what, and what the figures rest on."""

from dataclasses import replace
from typing import Any

from headway.planner.certify.explanation import explain


def test_a_plan_is_explained_from_the_whole_to_the_parts(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    plan = plan_for(
        [make_model("llama"), make_model("qwen", num_layers=2, max_model_len=512)],
        [make_worker(f"worker-{index}") for index in range(3)],
    )
    text = " ".join(explain(plan))
    assert "llama is served by" in text
    assert "Spare workers went where a token is dearest" in text
    assert "at most 2048 tokens, the longest that llama was built for" in text
    assert "at most 512 tokens, as was asked for" in text
    assert "an estimate from the hardware's name" in text
    assert "hold llama's weights in float32" in text


def test_a_context_cut_by_memory_is_called_that(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    plan = plan_for([make_model(max_position=10_000_000)], [make_worker(memory_bytes=2 * 2**30)])
    assert any("memory holds no more" in sentence for sentence in explain(plan))


def test_a_measured_profile_is_named(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    plan = plan_for([make_model()], [make_worker()])
    (assignment,) = plan.assignments
    prediction = replace(assignment.prediction, profile_id="cafe")
    measured = replace(plan, assignments=(replace(assignment, prediction=prediction),))
    assert any("profile cafe, measured to within" in sentence for sentence in explain(measured))


def test_a_worker_without_a_model_is_mentioned(plan_for: Any, make_model: Any, make_worker: Any) -> None:
    workers = [make_worker("worker-0"), make_worker("worker-1", memory_bytes=2**20)]
    assert any("worker-1 serves nothing" in sentence for sentence in explain(plan_for([make_model()], workers)))
