"""The requests for the weights that training begins with, and for a directory of those that it ended with."""

from dataclasses import dataclass

from headway.core.capture import CaptureRequest


@dataclass(frozen=True, slots=True, kw_only=True)
class WeightsRequest:
    """Attributes:
    names: of the step's inputs; those that are parameters or buffers are written.
    path: of the file.
    """

    capture: CaptureRequest
    names: tuple[str, ...]
    seed: int
    path: str


@dataclass(frozen=True, slots=True, kw_only=True)
class ExportRequest:
    """Attributes:
    checkpoint: the directory of a run's checkpoint.
    model: the directory that the run began with.
    out: the directory to make.
    """

    checkpoint: str
    model: str
    out: str
