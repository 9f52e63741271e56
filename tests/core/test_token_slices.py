"""Slices of a step's tokens are the step in parts."""

from functools import cache

import pytest

from headway.core.batching import at_batch
from headway.core.capture import CaptureRequest
from headway.core.errors import FailedPreconditionError
from headway.core.graph import Graph, OperatorKind
from headway.core.token_slices import TokenSlices, context_of
from headway.profiler.capture.capture import capture


@cache
def captured(name: str) -> Graph:
    request = CaptureRequest(source=f"zoo:{name}-small", batch=2, seq=16, train=True)
    return capture(request, report=lambda _: None).graph


MODELS = ("gpt3-1b", "llama-7b")


@pytest.mark.parametrize("name", MODELS)
def test_a_slice_of_all_tokens_is_the_step(name: str) -> None:
    graph = captured(name)
    slices = TokenSlices(graph)
    assert slices.seq_len == 16
    assert slices.at(graph, 16, 0) == graph


@pytest.mark.parametrize("name", MODELS)
@pytest.mark.parametrize("tokens", [(8, 8), (4, 4, 8), (12, 3, 1)])
def test_slices_sum_up_to_the_step(name: str, tokens: tuple[int, ...]) -> None:
    graph = at_batch(captured(name), 6)
    slices = TokenSlices(captured(name))
    parts = [slices.at(graph, size, sum(tokens[:number])) for number, size in enumerate(tokens)]
    assert sum(part.flops for part in parts) == graph.flops


def test_a_slice_is_as_if_it_had_been_captured() -> None:
    """All but the positions' table, which has as many rows as there are tokens."""
    request = CaptureRequest(source="zoo:llama-7b-small", batch=2, seq=8, train=True)
    short = capture(request, report=lambda _: None).graph
    found = TokenSlices(captured("llama-7b")).at(captured("llama-7b"), 8, 0)
    assert [each.shape for each in found.tensors] == [each.shape for each in short.tensors]
    assert [each.space for each in found.operators] == [each.space for each in short.operators]
    assert [each.flops for each in found.operators] == [each.flops for each in short.operators]
    assert [each.bytes_read for each in found.operators] == [each.bytes_read for each in short.operators]


def test_attention_reads_the_keys_and_values_before_a_slice() -> None:
    graph = captured("llama-7b")
    slices = TokenSlices(graph)
    alone, after = slices.at(graph, 4, 0), slices.at(graph, 4, 12)
    for before, operator in zip(alone.operators, after.operators, strict=True):
        if operator.kind is not OperatorKind.ATTENTION:
            assert operator == before
            continue
        assert context_of(operator) == 12
        assert operator.flops == before.flops * (2 * 12 + 4) // 4
        assert operator.bytes_read > before.bytes_read


@pytest.mark.parametrize(
    ("name", "why"),
    [("bert-base", "later tokens"), ("qwen3-30b-a3b", "all tokens meet in"), ("wide-resnet-250m", "no attention")],
)
def test_models_that_are_no_causal_language_models_are_named(name: str, why: str) -> None:
    request = CaptureRequest(source=f"zoo:{name}-small", batch=2, train=True)
    with pytest.raises(FailedPreconditionError, match=why) as error:
        TokenSlices(capture(request, report=lambda _: None).graph)
    assert error.value.field == "method"
