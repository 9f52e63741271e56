"""Checkpoints of a run: parameters under their own names in a directory as Hugging Face has them, with the optimizer's
state beside them, so that any number of ranks can go on with any plan.

Every rank writes what it owns into `step-N.tmp`; once all have, the directory gets its name, and `LATEST` names it.
"""

import json
import shutil
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from pathlib import Path

import torch

from headway.checkpoint.tensors import read_tensors, write_index, write_tensors
from headway.checkpoint.whole_directory import put_in_place, sync
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.training_run import LATEST_FILE
from headway.train.shard import whole_state

_FACTS = "training.json"


@dataclass(frozen=True, slots=True, kw_only=True)
class CheckpointFacts:
    """Attributes:
    step: steps that were done.
    validation_loss: behind that step; None where it was not validated there.
    """

    step: int
    seed: int
    batch: int
    model: str
    validation_loss: float | None = None


class Checkpoints:
    """The checkpoints in one directory.

    Args:
        keep: how many of the last ones stay.
        best: how many with the least validation loss stay beside them.
    """

    def __init__(self, directory: Path, *, keep: int, best: int = 0) -> None:
        self._directory, self._keep, self._best = directory, keep, best

    def write(
        self, step: int, rank: int, state: Mapping[str, torch.Tensor], optimizer: Mapping[str, torch.Tensor]
    ) -> None:
        """Writes one rank's part. FailedPreconditionError names the step where the disk does not take it."""
        partial = self._partial(step)
        try:
            partial.mkdir(parents=True, exist_ok=True)
            for kind, tensors in (("model", state), ("optimizer", optimizer)):
                write_tensors(partial / f"{kind}-{rank:05}.safetensors", tensors)
        except OSError as error:
            raise _unwritten(step, error) from error

    def commit(self, facts: CheckpointFacts) -> Path:
        """Makes what all ranks have written a checkpoint; one rank calls it."""
        partial, final = self._partial(facts.step), self._directory / f"step-{facts.step:08}"
        try:
            write_index(partial, sorted(partial.glob("model-*.safetensors")))
            (partial / _FACTS).write_text(json.dumps(asdict(facts), indent=1))
            sync(partial / _FACTS)
            put_in_place(partial, final)
            named = self._directory / f"{LATEST_FILE}.tmp"
            named.write_text(final.name)
            sync(named)
            named.rename(self._directory / LATEST_FILE)
            sync(self._directory)
        except OSError as error:
            raise _unwritten(facts.step, error) from error
        self._drop_old()
        return final

    def latest(self) -> "Checkpoint | None":
        """The last one that is whole; None where there is none."""
        named = self._directory / LATEST_FILE
        return Checkpoint(self._directory / named.read_text().strip()) if named.is_file() else None

    def _partial(self, step: int) -> Path:
        return self._directory / f"step-{step:08}.tmp"

    def best(self) -> "tuple[Checkpoint, ...]":
        """Those with the least validation loss, the best first."""
        validated = [(each.facts.validation_loss, each.facts.step, each) for each in map(Checkpoint, self._whole())]
        ordered = sorted((loss, step, each) for loss, step, each in validated if loss is not None)
        return tuple(each for _, _, each in ordered[: self._best])

    def _drop_old(self) -> None:
        kept = {*self._whole()[-self._keep :], *(each.directory for each in self.best())}
        for path in (*self._whole(), *self._directory.glob("step-*.tmp")):
            if path not in kept:
                shutil.rmtree(path)

    def _whole(self) -> list[Path]:
        return sorted(path for path in self._directory.glob("step-*") if (path / _FACTS).is_file() and not path.suffix)


class Checkpoint:
    """One checkpoint that is read. InvalidArgumentError where it is damaged."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        try:
            document = json.loads((directory / _FACTS).read_text())
            self.facts = CheckpointFacts(**document)
        except (OSError, ValueError, TypeError) as error:
            raise InvalidArgumentError(
                f"{directory} is no checkpoint of a training run: {error}.", field="checkpoint"
            ) from error

    def state(self) -> dict[str, torch.Tensor]:
        """Parameters and buffers by name."""
        return self._tensors("model")

    def optimizer(self) -> dict[str, torch.Tensor]:
        """The optimizer's state by 'KEY/NAME', however ranks shared it; of one dim where they did."""
        return whole_state(self._tensors("optimizer"))

    def _tensors(self, kind: str) -> dict[str, torch.Tensor]:
        return read_tensors(sorted(self.directory.glob(f"{kind}-*.safetensors")), field="checkpoint")


def _unwritten(step: int, error: Exception) -> FailedPreconditionError:
    return FailedPreconditionError(
        f"The checkpoint of step {step} could not be written: {error}.",
        hint="Make room and resume the run; the checkpoint before it is whole.",
        field="checkpoint",
    )
