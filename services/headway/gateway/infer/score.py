"""How much two texts belong together."""

from collections.abc import Awaitable, Callable, Sequence
from dataclasses import dataclass
from typing import TypeAlias

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.infer import InferInput, TextInput
from headway.core.model import Task
from headway.gateway.infer.job import InferAnswer

Infer: TypeAlias = Callable[[Sequence[InferInput], str], Awaitable[InferAnswer]]
"""Computes inputs; it is given the request's field that they came in, too."""


@dataclass(frozen=True, slots=True, kw_only=True)
class TextPairs:
    """Texts of which each has a counterpart; a single first one is that of all.

    Attributes:
        first_field, second_field: the request's fields that they came in.
    """

    firsts: Sequence[str]
    seconds: Sequence[str]
    first_field: str
    second_field: str

    def __post_init__(self) -> None:
        if len(self.firsts) not in (1, len(self.seconds)):
            raise InvalidArgumentError(
                f"{self.first_field} has {len(self.firsts)} texts and {self.second_field} has {len(self.seconds)}.",
                hint=f"Send as many of both, or one {self.first_field} for all.",
                field=self.first_field,
            )

    @property
    def inputs(self) -> list[InferInput]:
        """Each pair as one input."""
        firsts = list(self.firsts) * len(self.seconds) if len(self.firsts) == 1 else self.firsts
        return [TextInput(*pair) for pair in zip(firsts, self.seconds, strict=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Scores:
    """The score of each pair, of shape [n]; and how many tokens were computed."""

    values: NDArray[np.float32]
    num_tokens: int


async def score(pairs: TextPairs, *, task: Task, infer: Infer) -> Scores:
    """Scores pairs as a cross-encoder judges them, or by the cosine between the embeddings of the two.

    Args:
        task: of the model that `infer` asks.
    """
    if task is not Task.EMBED:
        answer = await infer(pairs.inputs, pairs.second_field)
        return Scores(values=answer.vectors[:, 0], num_tokens=answer.num_tokens)
    firsts = await infer(list(map(TextInput, pairs.firsts)), pairs.first_field)
    seconds = await infer(list(map(TextInput, pairs.seconds)), pairs.second_field)
    return Scores(values=_cosines(firsts.vectors, seconds.vectors), num_tokens=firsts.num_tokens + seconds.num_tokens)


def _cosines(firsts: NDArray[np.float32], seconds: NDArray[np.float32]) -> NDArray[np.float32]:
    """The cosine between each two rows, or one and all, of shape [n]; 0 where one has no length."""
    lengths = np.linalg.norm(firsts, axis=1) * np.linalg.norm(seconds, axis=1)
    cosines: NDArray[np.float32] = (firsts * seconds).sum(axis=1) / np.maximum(lengths, np.finfo(np.float32).tiny)
    return cosines
