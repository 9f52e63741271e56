"""What is drawn follows the reference distribution, computed in float64 and by definition: chi-square tests."""

import math

import pytest
import torch

from headway.core.request import SamplingParams
from headway.engine.batch import ScheduledSequence
from headway.engine.sequence import Sequence
from headway.runner.row import Row
from headway.runner.sampler import Sampler

VOCAB_SIZE = 40
NUM_DRAWS = 4000
PROMPT, OUTPUT = [1, 2, 3, 3], [4, 5, 5, 5]

CASES = {
    "plain": SamplingParams(),
    "cold": SamplingParams(temperature=0.6),
    "hot": SamplingParams(temperature=2.0),
    "top-k": SamplingParams(top_k=7),
    "top-p": SamplingParams(top_p=0.8),
    "min-p": SamplingParams(min_p=0.1),
    "all-cuts": SamplingParams(temperature=1.3, top_k=12, top_p=0.85, min_p=0.03),
    "repetition": SamplingParams(repetition_penalty=1.8),
    "presence": SamplingParams(presence_penalty=1.5),
    "frequency": SamplingParams(frequency_penalty=-0.7),
    "all-penalties": SamplingParams(repetition_penalty=1.2, presence_penalty=0.5, frequency_penalty=0.4, top_p=0.95),
    "bias": SamplingParams(logit_bias=((4, 2.0), (7, -1.0))),
    "forbidden": SamplingParams(min_tokens=9, stop_token_ids=(0, 8), bad_token_ids=((6,), (5, 5, 5, 10))),
}


def reference(logits: torch.Tensor, params: SamplingParams, *, output: list[int]) -> torch.Tensor:
    """The distribution of the next token, by definition."""
    scores = logits.double().clone()
    for token, bias in params.logit_bias:
        scores[token] += bias
    for token in {*PROMPT, *output}:
        scores[token] *= params.repetition_penalty if scores[token] < 0 else 1 / params.repetition_penalty
    for token in set(output):
        scores[token] -= params.presence_penalty + params.frequency_penalty * output.count(token)
    for *prefix, last in params.bad_token_ids:
        if prefix == output[len(output) - len(prefix) :]:
            scores[last] = -torch.inf
    if len(output) < params.min_tokens:
        scores[list(params.stop_token_ids)] = -torch.inf
    probabilities = (scores / params.temperature).softmax(0)
    probabilities[probabilities < params.min_p * probabilities.max()] = 0
    order = probabilities.argsort(descending=True)
    if params.top_k:
        probabilities[order[params.top_k :]] = 0
    probabilities /= probabilities.sum()
    mass_before = probabilities[order].cumsum(0) - probabilities[order]
    probabilities[order[mass_before >= params.top_p]] = 0
    return probabilities / probabilities.sum()


def check_draws(drawn: list[int], probabilities: torch.Tensor) -> None:
    """Chi-square at 99.9 %; tokens that are too rare to be counted by themselves are counted together."""
    counts = torch.bincount(torch.tensor(drawn), minlength=VOCAB_SIZE).double()
    assert (counts[probabilities == 0] == 0).all()
    expected = probabilities * len(drawn)
    is_rare = expected < 8
    counts = torch.cat([counts[~is_rare], counts[is_rare].sum()[None]])
    expected = torch.cat([expected[~is_rare], expected[is_rare].sum()[None]])
    counts, expected = counts[expected > 0], expected[expected > 0]
    freedom = len(counts) - 1
    # Wilson and Hilferty's approximation of the quantile.
    limit = freedom * (1 - 2 / (9 * freedom) + 3.09 * math.sqrt(2 / (9 * freedom))) ** 3
    assert ((counts - expected) ** 2 / expected).sum().item() < limit


def sequences(params: SamplingParams, *, output: list[int]) -> list[Sequence]:
    """The same sequence under many seeds."""
    fields = {name: getattr(params, name) for name in SamplingParams.__slots__}
    return [
        Sequence("request", PROMPT + output, len(PROMPT), SamplingParams(**{**fields, "seed": seed}), arrival_s=0.0)
        for seed in range(NUM_DRAWS)
    ]


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(2, VOCAB_SIZE, generator=torch.Generator().manual_seed(11)) * 1.5


@pytest.mark.parametrize("params", CASES.values(), ids=CASES)
def test_tokens_follow_the_reference_softmax(logits, params):
    rows = [Row(sequence) for sequence in sequences(params, output=OUTPUT)]
    samples = Sampler().start_rows(logits[:1].repeat(NUM_DRAWS, 1), rows).finish()
    check_draws([sample.token_ids[0] for sample in samples], reference(logits[0], params, output=OUTPUT))


@pytest.mark.parametrize("params", [CASES["plain"], CASES["all-cuts"], CASES["all-penalties"]])
def test_verified_drafts_do_not_bend_the_distribution(logits, params):
    """The first token follows its reference whatever is drafted, and the next one its own, given the draft."""
    draft = logits[0].topk(3).indices[2].item()
    scheduled_sequences = [
        ScheduledSequence(sequence, 2, samples=True, draft_token_ids=(draft,))
        for sequence in sequences(params, output=OUTPUT)
    ]
    samples = [sample for (sample,) in Sampler().start(logits.repeat(NUM_DRAWS, 1), scheduled_sequences).finish()]
    check_draws([sample.token_ids[0] for sample in samples], reference(logits[0], params, output=OUTPUT))
    seconds = [sample.token_ids[1] for sample in samples if len(sample.token_ids) == 2]
    assert len(seconds) > 200
    check_draws(seconds, reference(logits[1], params, output=[*OUTPUT, draft]))
