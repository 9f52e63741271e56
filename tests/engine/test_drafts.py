"""Speculation in the engine: the same tokens in fewer steps, from what a step has to spare."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from headway.core.request import BeamSearch, FinishReason, GenerationRequest

if TYPE_CHECKING:
    from tests.engine.conftest import Bench

MakeBench = Callable[..., "Bench"]
MakeRequest = Callable[..., GenerationRequest]


def test_drafts_change_no_output_and_save_steps(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_draft_tokens=3, draft_ngram=2)
    requests = [make_request(f"r{n}", 9, max_tokens=90, temperature=0.0, num_logprobs=0) for n in range(4)]
    bench.run(*requests)
    for request in requests:
        bench.check_output(request)
    stats = bench.engine.stats()
    assert 0 < stats.num_accepted_tokens < stats.num_draft_tokens
    num_scheduled = sum(len(batch) for batch in bench.runner.batches)
    assert num_scheduled == 4 * 90 - stats.num_accepted_tokens


def test_tokens_and_their_log_probabilities_come_together(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_draft_tokens=3, draft_ngram=2)
    request = make_request("a", 9, max_tokens=60, temperature=0.0, num_logprobs=0)
    bench.engine.submit(request)
    outputs = []
    while bench.engine.has_work:
        outputs += bench.engine.step()
    assert max(len(output.token_ids) for output in outputs) > 1
    for output in outputs:
        assert tuple(entry.token_id for entry in output.logprobs) == output.token_ids


def test_what_follows_a_stop_token_is_dropped(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_draft_tokens=6, draft_ngram=2, eos_token_ids=(2,))
    requests = [make_request(f"r{n}", 9, max_tokens=90, temperature=0.0, min_tokens=30) for n in range(6)]
    bench.run(*requests)
    for request in requests:
        bench.check_output(request)
    assert set(bench.reasons.values()) == {FinishReason.STOP}


def test_drafts_take_only_what_is_left_of_the_budget(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_draft_tokens=8, draft_ngram=1, max_num_seqs=3, max_num_batched_tokens=5)
    requests = [make_request(f"r{n}", 9, max_tokens=40, temperature=0.0) for n in range(3)]
    bench.run(*requests)  # the runner checks the budget of every batch
    for request in requests:
        bench.check_output(request)
    assert bench.engine.stats().num_draft_tokens > 0


def test_drafts_never_make_anybody_give_way(make_bench: MakeBench, make_request: MakeRequest) -> None:
    requests = [make_request(f"r{n}", 8, max_tokens=8, temperature=0.0) for n in range(4)]
    for num_draft_tokens in (0, 4):
        bench = make_bench(num_blocks=16, num_draft_tokens=num_draft_tokens, draft_ngram=1)
        bench.run(*requests)
        assert bench.engine.stats().num_preemptions == 0


def test_beams_have_no_drafts(make_bench: MakeBench, make_request: MakeRequest) -> None:
    bench = make_bench(num_draft_tokens=4, draft_ngram=1)
    bench.run(make_request("a", 9, max_tokens=40, beam=BeamSearch(width=3)))
    assert bench.engine.stats().num_draft_tokens == 0
