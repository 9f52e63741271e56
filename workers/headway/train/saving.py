"""When checkpoints of a run are written, and by which way: at once, or from a copy while training goes on."""

import threading
from collections.abc import Mapping

import torch

from headway.core.errors import HeadwayError
from headway.core.training_job import CheckpointSettings
from headway.train.checkpoint import CheckpointFacts, Checkpoints
from headway.train.links import Links

Tensors = Mapping[str, torch.Tensor]


class Saver:
    """One rank's part in checkpoints. Rank 0 commits one when all ranks have written theirs."""

    def __init__(self, checkpoints: Checkpoints, settings: CheckpointSettings, rank: int, links: Links) -> None:
        self._checkpoints, self._settings, self._rank, self._links = checkpoints, settings, rank, links
        self._world = links.world
        self._pending: CheckpointFacts | None = None
        self._thread: threading.Thread | None = None
        self._error: HeadwayError | None = None
        self._best = [loss for each in checkpoints.best() if (loss := each.facts.validation_loss) is not None]

    def is_due(self, step: int, validation_loss: float | None) -> bool:
        """Whether a checkpoint belongs behind a step: by its number, or as one of the best."""
        if self._settings.every > 0 and step % self._settings.every == 0:
            return True
        if not self._settings.best or validation_loss is None:
            return False
        return len(self._best) < self._settings.best or validation_loss < self._best[-1]

    def begin(self, facts: CheckpointFacts, state: Tensors, optimizer: Tensors) -> None:
        """Writes one; where that is done in the background, returns when a copy is made.

        Raises:
            FailedPreconditionError: this one or the one before could not be written.
        """
        self.finish()
        self._pending = facts
        if facts.validation_loss is not None:
            self._best = sorted([*self._best, facts.validation_loss])[: self._settings.best]
        if self._settings.background:
            copies = [
                {name: tensor.to("cpu", copy=True) for name, tensor in given.items()} for given in (state, optimizer)
            ]
            self._thread = threading.Thread(target=self._write, args=(facts, *copies), name="checkpoint")
            self._thread.start()
        else:
            self._checkpoints.write(facts.step, self._rank, state, optimizer)
            self.finish()

    def is_written(self) -> bool:
        """Whether this rank's part waits for others to be written; FailedPreconditionError where it cannot be."""
        if self._error is not None:
            raise self._error
        return self._pending is not None and (self._thread is None or not self._thread.is_alive())

    def advance(self, num_written: int) -> None:
        """Is told on all ranks in the same step how many of them have written."""
        if self._pending is not None and num_written == self._world:
            self._commit(self._pending)

    def finish(self) -> None:
        """Returns when no checkpoint is under way any more, on any rank."""
        if self._pending is None:
            return
        if self._thread is not None:
            self._thread.join()
            self._thread = None
        self.is_written()
        self._links.wait_for_all()
        self._commit(self._pending)
        self._links.wait_for_all()

    def _commit(self, facts: CheckpointFacts) -> None:
        self._pending = self._thread = None
        if self._rank == 0:
            self._checkpoints.commit(facts)

    def _write(self, facts: CheckpointFacts, state: Tensors, optimizer: Tensors) -> None:
        try:
            self._checkpoints.write(facts.step, self._rank, state, optimizer)
        except HeadwayError as error:
            self._error = error
