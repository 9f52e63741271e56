"""What a process is told of the program that it is to run."""

from dataclasses import dataclass

from headway.core.program import Program


@dataclass(frozen=True, slots=True, kw_only=True)
class Entry:
    """Attributes:
    device: 'cpu' or 'cuda'.
    """

    program: Program
    device: str
    num_threads: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Answer:
    """The first answer, when it is compiled, has the deviation, each later one the seconds of a run.

    Attributes:
        fault: what was raised; empty where nothing was.
    """

    seconds: float = 0.0
    deviation: float = 0.0
    fault: str = ""
