"""Slicing schemes and what they take: one function for ours, the papers' and anyone's (equation 2.5). Pure."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class BatchSlice:
    """Some sequences at once, their tokens cut into slices.

    Attributes:
        num_sequences: of the mini-batch.
        tokens: of each slice, in order.
    """

    num_sequences: int
    tokens: tuple[int, ...]


Scheme = tuple[BatchSlice, ...]


@dataclass(frozen=True, kw_only=True, eq=False)
class SliceTimes:
    """What a slice takes on one stage, forward and backward, with sending what it gives to the next.

    Attributes:
        seconds: [sequences, slice, context]; of 1, 2, ... sequences, slices of 1, 2, ... steps after contexts of 0, 1,
            ... steps. Infinite where that was not measured.
        step: tokens.
        num_stages: K of equation 2.5.
        once_s: once an iteration, such as the optimizer.
    """

    seconds: Floats
    step: int
    num_stages: int
    once_s: float = 0.0

    @property
    def max_sequences(self) -> int:
        return int(self.seconds.shape[0])

    @property
    def seq_len(self) -> int:
        return int(self.seconds.shape[1]) * self.step

    def of(self, scheme: Scheme) -> Floats:
        """Seconds of each slice, in order.

        Raises:
            InvalidArgumentError: a slice is no whole number of steps, or slices are not a whole sequence.
        """
        found = []
        for part in scheme:
            if sum(part.tokens) != self.seq_len or any(tokens % self.step or tokens < 1 for tokens in part.tokens):
                raise InvalidArgumentError(
                    f"Slices of {list(part.tokens)} tokens are not a sequence of {self.seq_len}.",
                    hint=f"Give whole numbers of {self.step} tokens that sum up to it.",
                    field="tokens",
                )
            begins = np.concatenate([[0], np.cumsum(part.tokens)[:-1]]) // self.step
            sizes = np.array(part.tokens) // self.step
            found.append(self.seconds[part.num_sequences - 1, sizes - 1, begins])
        return np.concatenate(found)

    def iteration_s(self, scheme: Scheme) -> float:
        """Equation 2.5 with one slowest slice for the whole mini-batch: all slices on one stage, and the slowest one on
        each of the others."""
        seconds = self.of(scheme)
        later_s = (self.num_stages - 1) * seconds.max() if self.num_stages > 1 else 0.0
        return float(seconds.sum() + later_s + self.once_s)


def uniform(batch: int, seq_len: int, *, num_slices: int) -> Scheme:
    """Each sequence by itself, in equal slices."""
    return (BatchSlice(1, (seq_len // num_slices,) * num_slices),) * batch
