import pytest
import torch

from headway.core.request import SamplingParams
from headway.engine.sequence import Sequence
from headway.runner.sampler import sample

VOCAB_SIZE = 700


def make_sequence(*, output: tuple[int, ...] = (), **sampling) -> Sequence:
    tokens = [1, 2, 3, *output]
    return Sequence("request", tokens, 3, SamplingParams(**sampling), arrival_s=0.0)


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 2


def run(logits: torch.Tensor, sequences: list[Sequence], *, eos_token_ids: tuple[int, ...] = ()):
    return sample(logits.clone(), sequences, eos_token_ids=eos_token_ids)


def test_temperature_zero_takes_the_best(logits):
    samples = run(logits, [make_sequence(temperature=0.0) for _ in logits])
    assert samples.token_ids == logits.argmax(1).tolist()
    assert samples.logprobs == [None] * 8


def test_greedy_and_random_rows_mix(logits):
    sequences = [make_sequence(temperature=float(row % 2), seed=row, top_p=0.9) for row in range(8)]
    together = run(logits, sequences).token_ids
    assert together[::2] == logits.argmax(1).tolist()[::2]
    assert together == [run(logits[i : i + 1], sequences[i : i + 1]).token_ids[0] for i in range(8)]


def test_draw_depends_on_seed_and_output_position(logits):
    row = logits[:1] * 0

    def drawn(seed: int, output: tuple[int, ...]) -> int:
        return run(row, [make_sequence(seed=seed, output=output)]).token_ids[0]

    assert drawn(1, (5, 6)) == drawn(1, (9, 9))
    assert len({drawn(1, (5,) * length) for length in range(20)}) > 10
    assert len({drawn(seed, ()) for seed in range(20)}) > 10


def test_top_k_one_is_greedy_at_any_temperature(logits):
    samples = run(logits, [make_sequence(temperature=5.0, top_k=1, seed=row) for row in range(8)])
    assert samples.token_ids == logits.argmax(1).tolist()


def test_stops_are_not_sampled_before_min_tokens(logits):
    best = logits[0].argmax().item()
    early = run(logits[:1], [make_sequence(temperature=0.0, min_tokens=1)], eos_token_ids=(best,))
    assert early.token_ids[0] == logits[0].topk(2).indices[1].item()
    assert run(logits[:1], [make_sequence(temperature=0.0)], eos_token_ids=(best,)).token_ids[0] == best


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {}, {"top_p": 0.9, "top_k": 20, "min_p": 0.1}])
def test_broken_logits_give_some_token(logits, value, sampling):
    logits[1] = value
    samples = run(logits[:2], [make_sequence(seed=row, **sampling) for row in range(2)])
    assert 0 <= samples.token_ids[1] < VOCAB_SIZE
    assert samples.token_ids[0] == run(logits[:1], [make_sequence(seed=0, **sampling)]).token_ids[0]


def test_penalties_change_the_choice_but_not_the_logprobs(logits):
    best = logits[0].argmax().item()
    sequence = make_sequence(temperature=0.0, output=(best,), frequency_penalty=2.0, num_logprobs=2)
    logits[0, best] = logits[0].topk(2).values[1] + 0.5
    samples = run(logits[:1], [sequence])
    assert samples.token_ids[0] != best
    entry = samples.logprobs[0]
    assert entry is not None
    assert (entry.token_id, entry.rank, entry.top[0][0]) == (samples.token_ids[0], 2, best)
    expected = logits[0].log_softmax(0)
    assert entry.logprob == pytest.approx(expected[entry.token_id].item(), abs=1e-5)
    assert entry.top[0][1] == pytest.approx(expected[best].item(), abs=1e-5)


def test_rows_get_as_many_logprobs_as_they_ask_for(logits):
    wanted = [None, 0, 1, 5]
    samples = run(logits[:4], [make_sequence(num_logprobs=count, seed=9) for count in wanted])
    assert [None if entry is None else len(entry.top) for entry in samples.logprobs] == wanted
    best = logits[3].log_softmax(0).topk(5)
    assert samples.logprobs[3] is not None
    assert [token for token, _ in samples.logprobs[3].top] == best.indices.tolist()
