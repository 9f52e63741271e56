"""A batch under way, and what computes it."""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Protocol

from headway.core.infer import InferSequence


@dataclass(slots=True)
class InFlightBatch:
    """A batch that a runner has begun with.

    Attributes:
        finish: returns the vector of each sequence, float32, once they are there.
        due_s: when that is, by the engine's clock; in the past where `finish` itself computes them, and infinity as
            long as it is not known.
    """

    finish: Callable[[], list[bytes]]
    due_s: float = -math.inf


class EncoderRunner(Protocol):
    """Computes batches in the order in which they were started. Seconds are those of the engine's clock."""

    def wait(self, since_s: float) -> None:
        """Tells it since when the oldest sequence waits that is in no batch yet; infinity for none. Where models share
        the devices, `free_s` and `start` let those go first that have waited longer."""

    @property
    def free_s(self) -> float:
        """From when on it takes another batch, or is to be asked again; a pipeline does while others are in its later
        stages."""

    def duration_s(self, sequences: Sequence[InferSequence]) -> float:
        """What a batch takes alone; 0 while that is unknown."""

    def predict(self, sequences: Sequence[InferSequence], *, ready_s: float) -> float:
        """When a batch would be done if it started now; in the past while that is unknown."""

    def start(self, sequences: Sequence[InferSequence], *, ready_s: float) -> InFlightBatch:
        """Takes a batch on, which has been waiting since `ready_s`."""
