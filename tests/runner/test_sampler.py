import pytest
import torch
from transformers import (
    LogitsProcessorList,
    MinNewTokensLengthLogitsProcessor,
    NoBadWordsLogitsProcessor,
    RepetitionPenaltyLogitsProcessor,
)
from transformers.generation.logits_process import SequenceBiasLogitsProcessor

from headway.core.request import BeamSearch, SamplingParams
from headway.engine.batch import Sample, ScheduledSequence
from headway.engine.sequence import Sequence
from headway.runner.row import Row
from headway.runner.sampler import Sampler

VOCAB_SIZE = 700
BEAM = BeamSearch(width=3)


def make_sequence(*, output: tuple[int, ...] = (), **sampling) -> Sequence:
    tokens = [1, 2, 3, *output]
    return Sequence("request", tokens, 3, SamplingParams(**sampling), arrival_s=0.0)


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(8, VOCAB_SIZE, generator=torch.Generator().manual_seed(3)) * 2


def run(logits: torch.Tensor, sequences: list[Sequence], *, eos_token_ids: tuple[int, ...] = ()) -> list[Sample]:
    return Sampler(eos_token_ids).start_rows(logits.clone(), [Row(sequence) for sequence in sequences]).finish()


def tokens(logits: torch.Tensor, sequences: list[Sequence], *, eos_token_ids: tuple[int, ...] = ()) -> list[int]:
    return [sample.token_ids[0] for sample in run(logits, sequences, eos_token_ids=eos_token_ids)]


def test_temperature_zero_takes_the_best(logits):
    samples = run(logits, [make_sequence(temperature=0.0) for _ in logits])
    assert samples == [Sample((token,)) for token in logits.argmax(1).tolist()]


def test_greedy_and_random_rows_mix(logits):
    sequences = [make_sequence(temperature=float(row % 2), seed=row, top_p=0.9) for row in range(8)]
    together = tokens(logits, sequences)
    assert together[::2] == logits.argmax(1).tolist()[::2]
    assert together == [tokens(logits[i : i + 1], sequences[i : i + 1])[0] for i in range(8)]


def test_draw_depends_on_seed_and_output_position(logits):
    row = logits[:1] * 0

    def drawn(seed: int, output: tuple[int, ...]) -> int:
        return tokens(row, [make_sequence(seed=seed, output=output)])[0]

    assert drawn(1, (5, 6)) == drawn(1, (9, 9))
    assert len({drawn(1, (5,) * length) for length in range(20)}) > 10
    assert len({drawn(seed, ()) for seed in range(20)}) > 10


def test_top_k_one_is_greedy_at_any_temperature(logits):
    drawn = tokens(logits, [make_sequence(temperature=5.0, top_k=1, seed=row) for row in range(8)])
    assert drawn == logits.argmax(1).tolist()


def test_stops_are_not_sampled_before_min_tokens(logits):
    best = logits[0].argmax().item()
    early = tokens(logits[:1], [make_sequence(temperature=0.0, min_tokens=1)], eos_token_ids=(best,))
    assert early[0] == logits[0].topk(2).indices[1].item()
    assert tokens(logits[:1], [make_sequence(temperature=0.0)], eos_token_ids=(best,)) == [best]


@pytest.mark.parametrize("value", [torch.nan, torch.inf, -torch.inf])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {}, {"top_p": 0.9, "top_k": 20, "min_p": 0.1}])
def test_broken_logits_end_their_own_sequence(logits, value, sampling):
    logits[1] = value
    sound, broken = run(logits[:2], [make_sequence(seed=row, **sampling) for row in range(2)])
    assert broken.token_ids == ()
    assert ("constraints" if value == -torch.inf else "no finite numbers") in broken.error
    assert [sound] == run(logits[:1], [make_sequence(seed=0, **sampling)])


@pytest.mark.parametrize("value", [torch.nan, torch.inf])
@pytest.mark.parametrize("sampling", [{"temperature": 0.0}, {}, {"num_logprobs": 2}, {"beam": BEAM}])
def test_one_broken_logit_is_enough(logits, value, sampling):
    logits[1, 77] = value
    sound, broken = run(logits[:2], [make_sequence(seed=row, **sampling) for row in range(2)])
    assert not broken.token_ids
    assert not broken.candidates
    assert "no finite numbers" in broken.error
    assert not sound.error


def test_penalties_change_the_choice_but_not_the_logprobs(logits):
    best = logits[0].argmax().item()
    sequence = make_sequence(temperature=0.0, output=(best,), frequency_penalty=2.0, num_logprobs=2)
    logits[0, best] = logits[0].topk(2).values[1] + 0.5
    sample = run(logits[:1], [sequence])[0]
    assert sample.token_ids[0] != best
    entry = sample.logprobs[0]
    assert (entry.token_id, entry.rank, entry.top[0][0]) == (sample.token_ids[0], 2, best)
    expected = logits[0].log_softmax(0)
    assert entry.logprob == pytest.approx(expected[entry.token_id].item(), abs=1e-5)
    assert entry.top[0][1] == pytest.approx(expected[best].item(), abs=1e-5)


def test_rows_get_as_many_logprobs_as_they_ask_for(logits):
    wanted = [None, 0, 1, 5]
    samples = run(logits[:4], [make_sequence(num_logprobs=count, seed=9) for count in wanted])
    assert [len(sample.logprobs[0].top) if sample.logprobs else None for sample in samples] == wanted
    best = logits[3].log_softmax(0).topk(5)
    assert [token for token, _ in samples[3].logprobs[0].top] == best.indices.tolist()


def sampled_one_by_one(logits: torch.Tensor, sequence: Sequence) -> list[Sample]:
    """What as many steps give as there are rows of logits."""
    samples = []
    for row in range(len(logits)):
        samples += run(logits[row : row + 1], [sequence], eos_token_ids=(9,))
        sequence.token_ids += samples[-1].token_ids
    return samples


@pytest.mark.parametrize(
    "sampling",
    [
        {"temperature": 0.0, "num_logprobs": 2},
        {"temperature": 0.7, "top_p": 0.9},
        {"frequency_penalty": 1.0, "presence_penalty": 0.5, "repetition_penalty": 1.3, "num_logprobs": 0},
        {"min_tokens": 3, "bad_token_ids": ((4,), (5, 6), (2, 7, 8))},
    ],
)
@pytest.mark.parametrize("num_right", [0, 1, 2, 3])
def test_drafts_are_accepted_as_far_as_they_are_what_is_sampled(sampling, num_right):
    generator = torch.Generator().manual_seed(8)
    for seed in range(10):
        logits = torch.randn(4, 12, generator=generator) * 2
        samples = sampled_one_by_one(logits, make_sequence(seed=seed, **sampling))
        right = [sample.token_ids[0] for sample in samples]
        drafts = tuple(right[:num_right] + [(token + 1) % 12 for token in right[num_right:3]])
        sequence = make_sequence(seed=seed, **sampling)
        scheduled = ScheduledSequence(sequence, 1 + len(drafts), samples=True, draft_token_ids=drafts)
        ((verified,),) = Sampler((9,)).start(logits.clone(), [scheduled]).finish()
        assert verified.token_ids == tuple(right[: num_right + 1])
        assert verified.logprobs == tuple(entry for sample in samples[: num_right + 1] for entry in sample.logprobs)


def test_followers_sample_from_their_leaders_logits_each_with_its_own_seed(logits):
    chunk = ScheduledSequence(make_sequence(), 2, samples=False)
    leaders = [make_sequence(seed=row, num_logprobs=0) for row in range(3)]
    followers = tuple(make_sequence(seed=10 + row, temperature=0.5) for row in range(3))
    scheduled_sequences = [
        ScheduledSequence(leaders[0], 3, samples=True),
        chunk,
        ScheduledSequence(leaders[1], 3, samples=True, followers=followers),
        ScheduledSequence(leaders[2], 3, samples=True, draft_token_ids=(5,)),
    ]
    samples = Sampler().start(logits[:4].clone(), scheduled_sequences).finish()
    assert [len(group) for group in samples] == [1, 0, 4, 1]
    alone = run(logits[[0, 1, 1, 1, 1, 2]], [leaders[0], leaders[1], *followers, leaders[2]])
    assert [sample for group in samples for sample in group] == alone


@pytest.mark.parametrize(("num_stops", "count"), [(0, 6), (1, 6), (2, 9)])
def test_a_beam_gets_enough_candidates_to_go_on_whatever_stops(logits, num_stops, count):
    sequences = [make_sequence(beam=BEAM, stop_token_ids=(5,) * (num_stops > 1)), make_sequence(seed=1, num_logprobs=0)]
    samples = run(logits[:2], sequences, eos_token_ids=(9,)[:num_stops])
    best = logits[0].log_softmax(0).topk(count)
    assert [token for token, _ in samples[0].candidates] == best.indices.tolist()
    assert [value for _, value in samples[0].candidates] == pytest.approx(best.values.tolist(), abs=1e-6)
    assert samples[0].token_ids == samples[0].logprobs == ()
    assert samples[1:] == run(logits[1:2], sequences[1:])


def test_a_beams_log_probabilities_are_processed_as_transformers_does(logits):
    """Processors work on log probabilities, which are not normalised again."""
    best = logits[0].topk(3).indices.tolist()
    constraints = {
        "repetition_penalty": 1.4,
        "min_tokens": 5,
        "logit_bias": ((7, 4.0),),
        "bad_token_ids": ((best[0],), (3, best[1])),
    }
    sample = run(logits[:1], [make_sequence(output=(3,), beam=BEAM, **constraints)], eos_token_ids=(best[2],))[0]
    processors = LogitsProcessorList(
        [
            SequenceBiasLogitsProcessor([[[7], 4.0]]),
            RepetitionPenaltyLogitsProcessor(1.4),
            NoBadWordsLogitsProcessor([[best[0]], [3, best[1]]], eos_token_id=best[2]),
            MinNewTokensLengthLogitsProcessor(3, 5, best[2]),
        ]
    )
    scores = processors(torch.tensor([[1, 2, 3, 3]]), logits[:1].log_softmax(1))[0]
    assert [token for token, _ in sample.candidates] == scores.topk(6).indices.tolist()
    assert [value for _, value in sample.candidates] == pytest.approx(scores.topk(6).values.tolist(), abs=1e-5)


def test_forbidden_tokens_are_no_candidates():
    bias = tuple((token, -float("inf")) for token in range(2, VOCAB_SIZE))
    sample = run(torch.zeros(1, VOCAB_SIZE), [make_sequence(beam=BEAM, logit_bias=bias)])[0]
    assert {token for token, _ in sample.candidates} == {0, 1}
