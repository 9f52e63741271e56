"""How long sequences wait, are prefilled and decoded. The clock ticks with each submission and twice in each step."""

from collections.abc import Callable
from dataclasses import dataclass, field

import pytest

from headway.core.request import BeamSearch, GenerationRequest
from tests.engine.conftest import Bench


@dataclass
class Listener:
    first_tokens: list[tuple[float, float]] = field(default_factory=list)
    decodes_s: list[float] = field(default_factory=list)

    def observe_first_token(self, *, queue_s: float, prefill_s: float) -> None:
        self.first_tokens.append((queue_s, prefill_s))

    def observe_end(self, *, decode_s: float) -> None:
        self.decodes_s.append(decode_s)


@pytest.fixture
def listener() -> Listener:
    return Listener()


def test_who_waits_for_another_waits_in_the_queue(
    make_bench: Callable[..., Bench], make_request: Callable[..., GenerationRequest], listener: Listener
) -> None:
    bench = make_bench(max_num_seqs=1)
    bench.engine.tell_phases(listener)
    bench.run(*(make_request(name, 3, max_tokens=3, ignore_eos=True) for name in "ab"))
    assert listener.first_tokens == [(2, 1), (7, 1)]  # b comes at 1, and begins at 8
    assert listener.decodes_s == [4, 4]


def test_the_chunks_of_a_prompt_are_its_prefill(
    make_bench: Callable[..., Bench], make_request: Callable[..., GenerationRequest], listener: Listener
) -> None:
    bench = make_bench(max_num_seqs=4, max_num_batched_tokens=4)
    bench.engine.tell_phases(listener)
    bench.run(make_request("a", 10, max_tokens=1, ignore_eos=True))
    assert listener.first_tokens == [(1, 5)]
    assert listener.decodes_s == [0]


def test_each_sample_counts_and_a_search_counts_once(
    make_bench: Callable[..., Bench],
    make_request: Callable[..., GenerationRequest],
    make_group: Callable[..., list[GenerationRequest]],
    listener: Listener,
) -> None:
    bench = make_bench()
    bench.engine.tell_phases(listener)
    bench.run_groups(make_group("a", 3, 5, max_tokens=4, ignore_eos=True, temperature=1.0))
    assert len(listener.first_tokens) == len(listener.decodes_s) == 3
    bench.run(make_request("b", 5, max_tokens=4, beam=BeamSearch(width=2, num_hypotheses=2)))
    assert len(listener.first_tokens) == len(listener.decodes_s) == 4


def test_a_cancelled_sequence_has_no_decode(
    make_bench: Callable[..., Bench], make_request: Callable[..., GenerationRequest], listener: Listener
) -> None:
    bench = make_bench()
    bench.engine.tell_phases(listener)
    bench.engine.submit(make_request("a", 5, ignore_eos=True))
    bench.step()
    bench.engine.cancel("a")
    bench.run(make_request("b", 5, max_tokens=2, ignore_eos=True))
    assert len(listener.first_tokens) == 2
    assert len(listener.decodes_s) == 1
