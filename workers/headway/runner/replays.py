"""Decode steps that were prepared once and are launched again and again."""

from dataclasses import dataclass
from typing import Protocol

from torch import Tensor

from headway.runner.future_tokens import FutureTokens
from headway.runner.step_message import ModelInput


@dataclass(frozen=True, slots=True)
class Replayed:
    """The results of a replayed step; they stay until the next replay.

    Attributes:
        hidden: the hidden states of the step's tokens, [T, width].
        best: int64 [T], the most likely token behind each, `NO_TOKEN` behind broken rows; None if it has not
            been computed along.
    """

    hidden: Tensor
    best: Tensor | None = None


class Replays(Protocol):
    """Replays the decode steps of one model and cache."""

    def replay(self, model_input: ModelInput, *, future: FutureTokens | None = None) -> Replayed | None:
        """Computes a step; None if it is not prepared."""
