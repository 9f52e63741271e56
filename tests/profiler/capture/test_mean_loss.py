"""A loss that micro-batches do not give is refused; one that they do is not."""

from collections.abc import Callable
from pathlib import Path

import pytest
import torch
from torch import nn
from torch.nn import functional

from headway.core.capture import CaptureRequest
from headway.core.errors import InvalidArgumentError
from headway.core.initial_weights import WeightsRequest
from headway.profiler.capture.mean_loss import check_mean_loss
from headway.profiler.capture.weights import write_weights

Loss = Callable[[torch.Tensor, torch.Tensor], torch.Tensor]
WEIGHTS = torch.tensor([1.0, 9.0, 1.0, 1.0])


class Model(nn.Module):
    """With dropout, as the same examples have another loss each time while it is trained."""

    def __init__(self, loss: Loss) -> None:
        super().__init__()
        torch.manual_seed(0)
        self.head, self.dropout = nn.Linear(8, 4), nn.Dropout()
        self._loss = loss

    def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return self._loss(self.dropout(self.head(x)), targets)


def summed(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores, targets, reduction="sum")


def weighed_by_class(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    return functional.cross_entropy(scores, targets, weight=WEIGHTS)


def contrastive(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """Each example is told apart from the others of its batch."""
    del targets
    return functional.cross_entropy(scores @ scores.T / 100, torch.arange(len(scores)))


def examples(targets: list[int]) -> tuple[torch.Tensor, torch.Tensor]:
    return 4 * torch.randn(len(targets), 8, generator=torch.Generator().manual_seed(1)), torch.tensor(targets)


@pytest.mark.parametrize("loss", [summed, weighed_by_class, contrastive])
def test_what_is_no_mean_is_refused(loss: Loss) -> None:
    with pytest.raises(InvalidArgumentError, match="The loss of Model is no mean over examples") as refused:
        check_mean_loss(Model(loss), examples([0, 1]), field="model")
    assert refused.value.field == "model"


def test_a_mean_is_let_and_the_module_is_as_it_was() -> None:
    model = Model(functional.cross_entropy)
    model.dropout.eval()
    check_mean_loss(model, examples([0, 1, 2]), field="model")
    assert model.training
    assert not model.dropout.training


def test_a_mean_over_targets_counts_those_that_are_not_ignored() -> None:
    class Tokens(nn.Module):
        def forward(self, x: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
            return functional.cross_entropy(x.flatten(0, 1), targets.flatten())

    x = torch.randn(2, 6, 5, generator=torch.Generator().manual_seed(1)) * 4
    check_mean_loss(Tokens(), (x, torch.tensor([[1, 2, 3, 4, 0, 1], [2, *[-100] * 5]])), field="model")


def test_of_what_gives_no_number_or_cannot_be_computed_nothing_is_said() -> None:
    def all_of_them(scores: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
        return functional.cross_entropy(scores, targets, reduction="none")

    check_mean_loss(Model(all_of_them), examples([0, 1]), field="model")
    check_mean_loss(Model(summed), examples([0, 9]), field="model")


def test_no_run_begins_with_one_that_is_no_mean(tmp_path: Path) -> None:
    source = f"{__name__}:{summed_model.__name__}"
    capture = CaptureRequest(source=source, batch=2, train=True)
    request = WeightsRequest(capture=capture, names=("head.weight",), seed=0, path=str(tmp_path / "weights"))
    with pytest.raises(InvalidArgumentError, match="no mean over examples"):
        write_weights(request)
    assert list(tmp_path.iterdir()) == []


def summed_model(batch: int) -> tuple[nn.Module, tuple[torch.Tensor, ...]]:
    return Model(summed), examples([0] * batch)
