"""What a step sees follows from seed and step; what does not fit the model is refused by its name."""

from pathlib import Path

import pytest
import torch
from safetensors.torch import save_file

from headway.core.errors import HeadwayError
from headway.core.execution.strides import dense_stride
from headway.core.program import Value
from headway.core.training_job import DataSettings, OptimizerSettings
from headway.train.data import open_data
from headway.train.optimizer import Optimizer, rate_at
from headway.train.shard import PIECE, Shard, whole_state

_SEQ, _BATCH = 4, 3
INPUTS = {name: Value(shape=(2, _SEQ), stride=(_SEQ, 1), dtype="int64", bound=50) for name in ("tokens", "targets")}


def _settings(directory: Path, kind: str, **tensors: torch.Tensor) -> DataSettings:
    save_file(tensors, directory / "data.safetensors")
    return DataSettings(**{kind: str(directory / "data.safetensors")})  # type: ignore[arg-type]


def test_targets_are_the_tokens_behind_and_each_run_comes_once_a_pass(tmp_path: Path) -> None:
    data = open_data(_settings(tmp_path, "tokens", tokens=torch.arange(41)), INPUTS, batch=_BATCH, seed=0)
    passes = [[data.batch(step) for step in range(3 * number, 3 * number + 3)] for number in range(2)]
    for each in passes:
        starts = [int(row[0]) for batch in each for row in batch["tokens"]]
        assert len(set(starts)) == 9
        assert all(start % _SEQ == 0 for start in starts)
        assert all(torch.equal(batch["tokens"] + 1, batch["targets"]) for batch in each)
    assert not torch.equal(passes[0][0]["tokens"], passes[1][0]["tokens"])


@pytest.mark.parametrize("kind", ["tokens", "synthetic"])
def test_a_step_sees_the_same_whoever_asks_and_whenever(kind: str, tmp_path: Path) -> None:
    text = _settings(tmp_path, "tokens", tokens=torch.arange(41))
    settings = text if kind == "tokens" else DataSettings(synthetic=True)
    first, again = (open_data(settings, INPUTS, batch=_BATCH, seed=1) for _ in range(2))
    for step in range(5):
        first.batch(step)
    assert all(torch.equal(first.batch(2)[name], again.batch(2)[name]) for name in INPUTS)
    other = open_data(settings, INPUTS, batch=_BATCH, seed=2)
    assert not torch.equal(other.batch(2)["tokens"], again.batch(2)["tokens"])


@pytest.mark.parametrize(
    ("kind", "tensors", "said"),
    [
        ("tensors", {"tokens": torch.zeros(9, _SEQ).long()}, "no tensor 'targets'"),
        ("tensors", dict.fromkeys(("tokens", "targets"), (9, 5)), r"examples of \[5\]"),
        ("tensors", dict.fromkeys(("tokens", "targets"), (2, _SEQ)), "has 2 examples, and an iteration 3"),
        ("tensors", {"tokens": torch.full((9, _SEQ), 50), "targets": torch.zeros(9, _SEQ).long()}, "numbers below 50"),
        ("tensors", {"tokens": torch.tensor(3), "targets": torch.tensor(3)}, "has no examples"),
        ("tokens", {"tokens": torch.arange(60)}, "token 59, and the model 50 tokens"),
        ("tokens", {"tokens": torch.arange(40) - 1}, "token -1, and the model 50 tokens"),
        ("tokens", {"tokens": torch.arange(40).reshape(8, 5)}, r"a tensor of \[8, 5\] torch.int64"),
        ("tokens", {"tokens": torch.rand(40)}, r"a tensor of \[40\] torch.float32"),
        ("tokens", {"tokens": torch.zeros(0).long()}, "has 0 runs"),
        ("tokens", {"tokens": torch.arange(9)}, "has 2 runs of 4 tokens"),
        ("tokens", {"text": torch.arange(40)}, "needs a tensor 'tokens'"),
    ],
)
def test_data_that_does_not_fit_is_refused(kind: str, tensors: dict[str, object], said: str, tmp_path: Path) -> None:
    given = {name: torch.zeros(each).long() if isinstance(each, tuple) else each for name, each in tensors.items()}
    with pytest.raises(HeadwayError, match=said):
        open_data(_settings(tmp_path, kind, **given), INPUTS, batch=_BATCH, seed=0)  # type: ignore[arg-type]


def test_no_file_is_no_data(tmp_path: Path) -> None:
    with pytest.raises(HeadwayError, match="no file"):
        open_data(DataSettings(tokens=str(tmp_path / "none")), INPUTS, batch=_BATCH, seed=0)


def test_rates_rise_then_fall_to_the_least() -> None:
    settings = OptimizerSettings(rate=1.0, schedule="cosine", warm_up=4, least_rate=0.1)
    rates = [rate_at(settings, step, 20) for step in range(20)]
    assert rates[:4] == [0.25, 0.5, 0.75, 1.0]
    assert rates[4:] == sorted(rates[4:], reverse=True)
    assert (rates[4], rates[-1]) == (pytest.approx(1.0), pytest.approx(0.1))
    assert rate_at(OptimizerSettings(rate=1.0, schedule="linear"), 5, 11) == pytest.approx(0.5)


def test_momentum_is_torchs_own() -> None:
    torch.manual_seed(0)
    weights = [torch.randn(3, 2, dtype=torch.float64) for _ in range(2)]
    ours = {str(number): weight.clone() for number, weight in enumerate(weights)}
    gradients = {name: torch.zeros_like(weight) for name, weight in ours.items()}
    settings = OptimizerSettings(name="momentum", rate=0.1, weight_decay=0.01)
    optimizer = Optimizer(settings, ours, gradients, num_steps=5)
    theirs = [weight.clone().requires_grad_() for weight in weights]
    reference = torch.optim.SGD(theirs, lr=0.1, momentum=settings.momentum, weight_decay=0.01)
    for step in range(5):
        for gradient, parameter in zip(gradients.values(), theirs, strict=True):
            gradient.copy_(torch.randn(3, 2, dtype=torch.float64))
            parameter.grad = gradient.clone()
        optimizer.step(step, norm=1.0)
        reference.step()
    assert all(torch.allclose(a, b, rtol=1e-12) for a, b in zip(ours.values(), theirs, strict=True))


def test_dims_keep_their_order_in_memory() -> None:
    turned = torch.empty(2, 3, 4).transpose(1, 2)
    assert dense_stride(turned.shape, turned.stride()) == turned.stride()
    assert dense_stride((5, 3, 4), (12, 4, 1)) == (12, 4, 1)


def test_an_optimizers_state_is_taken_up_by_ranks_that_share_it_otherwise() -> None:
    """Two ranks that share two parameters, then one that has all, then three."""
    settings = OptimizerSettings(rate=0.1)
    torch.manual_seed(0)
    start = {"a": torch.randn(3, 2), "b": torch.randn(5)}
    gradients = [{name: torch.randn_like(tensor) for name, tensor in start.items()} for _ in range(3)]
    whole = {name: tensor.clone() for name, tensor in start.items()}
    sums = {name: torch.zeros_like(tensor) for name, tensor in start.items()}
    alone = Optimizer(settings, whole, sums, num_steps=3)
    values, state = start, {}
    for step, num_ranks in enumerate((2, 1, 3)):
        for name, gradient in gradients[step].items():
            sums[name].copy_(gradient)
        alone.step(step, 1.0)
        flat = torch.cat([gradient.flatten() for gradient in gradients[step].values()])
        given = torch.cat([flat, torch.zeros(-len(flat) % num_ranks)])
        written: dict[str, torch.Tensor] = {}
        after = {name: tensor.clone() for name, tensor in values.items()}
        for rank in range(num_ranks):
            shard = Shard(values, given, ranks=tuple(range(num_ranks)), rank=rank)
            shard.gradient.copy_(given.view(num_ranks, -1)[rank])
            pieces = {name: (piece, gradient) for name, piece, gradient in shard.pieces()}
            optimizer = Optimizer(
                settings, {n: p for n, (p, _) in pieces.items()}, {n: g for n, (_, g) in pieces.items()}, num_steps=3
            )
            optimizer.restore(state)
            optimizer.step(step, 1.0)
            written |= optimizer.state()
            for name, (piece, _) in pieces.items():
                parameter, _, first = name.partition(PIECE)
                after[parameter].view(-1)[int(first) : int(first) + len(piece)] = piece
        values, state = after, whole_state(written)
        assert state.keys() == alone.state().keys()
        assert all(torch.equal(values[name], whole[name]) for name in whole)
