"""The loss on data that nothing is learnt from."""

from collections.abc import Sequence

import torch

from headway.train.batch import Batch
from headway.train.executor import Executor
from headway.train.links import Links


class Validation:
    """The same batches each time, without dropout.

    Args:
        executor: of forward passes only.
    """

    def __init__(self, executor: Executor, links: Links, batches: Sequence[Batch]) -> None:
        self._executor, self._links, self._batches = executor, links, batches

    @torch.no_grad()
    def loss(self) -> float:
        """The mean over all targets of all batches; all ranks take part, and all get it."""
        total = torch.zeros((), dtype=torch.float64, device=self._links.device)
        for batch in self._batches:
            total.add_(self._executor.step(batch), alpha=batch.counted)
        self._links.add_up_everywhere(total)
        return float(total) / sum(batch.counted for batch in self._batches)
