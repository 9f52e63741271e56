"""The route of a request: the worker that it goes to, and what it takes along."""

from dataclasses import dataclass

from headway.core.move import MoveTarget
from headway.core.prefix_source import PrefixSource


@dataclass(frozen=True, slots=True)
class Route:
    """The worker that a request goes to, and what that one is told of others.

    Attributes:
        decode_target: where the sequences go on once their prompt is computed; None: they stay.
        source: where the worker is to fetch the prompt's first blocks; None for nowhere.
    """

    endpoint: str
    decode_target: MoveTarget | None = None
    source: PrefixSource | None = None
