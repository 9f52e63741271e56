"""What a model thinks before it answers, as a piece of its output."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Reasoning:
    """New text of a model's reasoning, which is not part of its answer."""

    text: str
