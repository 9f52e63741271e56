import pytest
import torch

from headway.core.request import SamplingParams
from headway.runner.draw import token_weights
from headway.runner.truncation import truncate


def kept_by_definition(logits, params):
    """Tokens that stay: min_p, then top_k, then top_p, one row at a time and in float64."""
    scaled = logits.double() / params.temperature
    probabilities = scaled.softmax(0)
    stays = probabilities >= params.min_p * probabilities.max() * (1 - 1e-9)
    order = scaled.argsort(descending=True)
    if params.top_k:
        stays[order[params.top_k :]] = False
    total = probabilities[stays].sum()
    reached = 0.0
    for token in order.tolist():
        if stays[token]:
            stays[token] = reached < params.top_p * total
            reached += probabilities[token].item()
    return set(stays.nonzero()[:, 0].tolist())


def kept(logits, params):
    weights = token_weights(logits, torch.tensor([p.temperature for p in params]))
    truncate(weights, params, vocab_size=logits.shape[1])
    return [set(row.nonzero()[:, 0].tolist()) for row in weights]


CASES = [
    SamplingParams(),
    SamplingParams(top_k=1),
    SamplingParams(top_k=40),
    SamplingParams(top_k=5000),
    SamplingParams(top_p=0.9),
    SamplingParams(top_p=0.999, temperature=3.0),
    SamplingParams(top_p=0.01),
    SamplingParams(min_p=0.05),
    SamplingParams(min_p=0.3, temperature=2.0),
    SamplingParams(top_k=50, top_p=0.7, temperature=0.8),
    SamplingParams(top_k=50, top_p=0.95, min_p=0.02, temperature=1.5),
]


@pytest.fixture
def logits() -> torch.Tensor:
    return torch.randn(len(CASES), 2000, generator=torch.Generator().manual_seed(0)) * 2


def test_each_row_keeps_what_its_parameters_say(logits):
    for row, params, tokens in zip(logits, CASES, kept(logits, CASES), strict=True):
        assert tokens == kept_by_definition(row, params), params


def test_a_row_is_cut_the_same_alone_and_in_a_batch(logits):
    together = kept(logits, CASES)
    assert together == [kept(logits[i : i + 1], [params])[0] for i, params in enumerate(CASES)]


def test_ties_with_the_last_token_kept_stay():
    logits = torch.tensor([[1.0, 3.0, 2.0, 2.0, 2.0, 0.0]])
    assert kept(logits, [SamplingParams(top_k=2)]) == [{1, 2, 3, 4}]


def test_nucleus_of_a_flat_distribution_is_wide():
    logits = torch.linspace(0, 1e-3, 4096)[None]
    params = SamplingParams(top_p=0.75)
    assert kept(logits, [params])[0] == kept_by_definition(logits[0], params)


def test_forbidden_tokens_do_not_count_in_the_nucleus():
    logits = torch.tensor([[-torch.inf, 2.0, 2.1, -torch.inf, 1.0]])
    assert kept(logits, [SamplingParams(top_p=0.5)]) == [{1, 2}]
