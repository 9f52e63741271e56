"""The request for the weights that training begins with."""

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
