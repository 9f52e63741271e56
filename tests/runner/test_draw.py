import numpy as np
import pytest
import torch

from headway.runner.draw import draw_tokens, token_weights, uniforms

# Quantiles of the chi-square distribution at 99.9 %.
CHI_SQUARE_999 = {7: 24.32, 19: 43.82}


def draw(logits, *, temperature=1.0, uniform=None, seed=0):
    num_rows = len(logits)
    if uniform is None:
        uniform = uniforms([seed] * num_rows, list(range(num_rows)))
    weights = token_weights(logits, torch.full((num_rows,), temperature))
    return draw_tokens(weights, torch.as_tensor(uniform, dtype=torch.float64))


def test_uniforms_depend_on_seed_and_position_only():
    together = uniforms([3, 3, 9], [0, 1, 0])
    assert together.tolist() == [uniforms([s], [p])[0] for s, p in ((3, 0), (3, 1), (9, 0))]
    assert len(set(together.tolist())) == 3


def test_uniforms_accept_any_integer_seed():
    drawn = uniforms([-1, 0, 2**63, 2**64 + 5], [0, 0, 0, 0])
    assert ((drawn >= 0) & (drawn < 1)).all()
    assert drawn[3] == uniforms([5], [0])[0]


@pytest.mark.parametrize("axis", ["seed", "position"])
def test_uniforms_fill_the_interval_evenly(axis):
    counter, fixed = list(range(20_000)), [11] * 20_000
    drawn = uniforms(counter, fixed) if axis == "seed" else uniforms(fixed, counter)
    counts, _ = np.histogram(drawn, bins=20, range=(0, 1))
    assert ((counts - 1000) ** 2 / 1000).sum() < CHI_SQUARE_999[19]
    assert abs(np.corrcoef(drawn[:-1], drawn[1:])[0, 1]) < 0.03


@pytest.mark.parametrize("temperature", [0.5, 1.0, 2.0])
@pytest.mark.parametrize("vocab_size", [8, 300])
def test_draws_follow_the_softmax(temperature, vocab_size):
    generator = torch.Generator().manual_seed(4)
    logits = torch.randn(vocab_size, generator=generator) * 2
    expected = (logits / temperature).softmax(0).double()
    drawn = draw(logits.expand(20_000, -1).contiguous(), temperature=temperature, seed=5)
    # Tokens are pooled into 8 groups, which keeps expected counts large.
    group = torch.arange(vocab_size) % 8
    counts = torch.bincount(group[drawn], minlength=8).double()
    wanted = torch.zeros(8, dtype=torch.float64).index_add_(0, group, expected) * 20_000
    assert ((counts - wanted) ** 2 / wanted).sum().item() < CHI_SQUARE_999[7]


def test_draw_inverts_the_cumulative_distribution_in_vocabulary_order():
    logits = torch.tensor([[0.1, 0.2, 0.3, 0.4]]).log().expand(5, -1).contiguous()
    assert draw(logits, uniform=[0.0, 0.09, 0.11, 0.31, 0.999]).tolist() == [0, 0, 1, 2, 3]


def test_weights_are_proportional_to_the_softmax_and_padded_with_zeros():
    logits = torch.randn(3, 300, generator=torch.Generator().manual_seed(1))
    weights = token_weights(logits, torch.tensor([0.5, 1.0, 2.0]))
    assert weights.shape == (3, 384)
    assert (weights[:, 300:] == 0).all()
    expected = (logits / torch.tensor([[0.5], [1.0], [2.0]])).softmax(1)
    torch.testing.assert_close(weights[:, :300] / weights.sum(1, keepdim=True), expected)


def test_forbidden_tokens_are_never_drawn_even_at_the_ends():
    logits = torch.zeros(2, 300)
    logits[:, :2] = logits[:, -2:] = -torch.inf
    assert draw(logits, uniform=[0.0, 1 - 2**-52]).tolist() == [2, 297]


def test_a_row_draws_the_same_alone_and_in_a_batch():
    logits = torch.randn(16, 1000, generator=torch.Generator().manual_seed(2))
    uniform = uniforms([7] * 16, list(range(16)))
    alone = [draw(logits[i : i + 1], uniform=uniform[i : i + 1]).item() for i in range(16)]
    assert draw(logits, uniform=uniform).tolist() == alone


def test_tiny_temperature_draws_the_best():
    logits = torch.randn(8, 400, generator=torch.Generator().manual_seed(3))
    assert draw(logits, temperature=1e-6).tolist() == logits.argmax(1).tolist()


@pytest.mark.parametrize("temperature", [0.0, 1e-50, 1e-30])
def test_the_lowest_temperatures_take_the_best_token(temperature):
    logits = torch.tensor([[0.0, 3.0, 2.999, -1.0], [5.0, 5.0 - 1e-3, -torch.inf, 0.0]])
    weights = token_weights(logits, torch.full((2,), temperature))
    assert weights.isfinite().all()
    assert draw_tokens(weights, torch.tensor([0.999, 0.999], dtype=torch.float64)).tolist() == [1, 0]
