"""Which backend the layers of a served encoder run on: what may be asked for, and what became of it."""

from collections.abc import Iterable
from dataclasses import dataclass

from headway.core.backend import EAGER
from headway.core.backend_package import BUILT_IN, BackendPackage
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.model import ModelSpec
from headway.core.units import format_duration

FASTEST = "fastest"
"""The backend that is measured to be the fastest when the model is loaded."""


def serving_packages() -> tuple[BackendPackage, ...]:
    """The libraries that can serve, installed or not."""
    return tuple(package for package in BUILT_IN if package.serves)


def check_served_backend(name: str, *, field: str) -> None:
    """InvalidArgumentError where no backend of that name serves."""
    known = {package.name: package.serves for package in BUILT_IN}
    if name in (EAGER, FASTEST) or known.get(name):
        return
    offered = ", ".join((FASTEST, EAGER, *(package.name for package in serving_packages())))
    problem = "compiles for one shape, and batches have many" if name in known else "is unknown"
    raise InvalidArgumentError(f"The backend {name} {problem}.", hint=f"There are {offered}.", field=field)


def own_backend(name: str) -> str:
    """What a model's plan says for a name: nothing for what it runs on anyway."""
    return "" if name == EAGER else name


def check_installed(name: str, *, field: str) -> None:
    """FailedPreconditionError where the backend's library is not installed here, or for `FASTEST` none is."""
    installed = [package.name for package in serving_packages() if package.version is not None]
    if name == EAGER or name in installed or (name == FASTEST and installed):
        return
    offered = ", ".join((FASTEST, EAGER, *installed)) if installed else EAGER
    raise FailedPreconditionError(
        f"The backend {name} is not installed."
        if name != FASTEST
        else "No library is installed that could be faster than Headway's own kernels.",
        hint=f"`pip install 'headway[backends]'`; without it there is {offered}.",
        field=field,
    )


def obstacle(spec: ModelSpec, *, num_ranks: int, device: str) -> str:
    """Why a model's layers can run on no library but Headway's own kernels; empty where they can."""
    obstacles = (
        (spec.encoder is None, "it generates, and backends are for encoders"),
        (num_ranks > 1, "several workers share it"),
        (device != "cpu", f"it is computed on {device}"),
        (spec.dtype != "float32", f"it is computed in {spec.dtype}, and backends are compared in float32"),
        (bool(spec.quantization), f"its matrices are held in {spec.quantization}"),
    )
    return next((reason for is_so, reason in obstacles if is_so), "")


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendTrial:
    """One backend on a few batches of a loaded encoder.

    Attributes:
        backend: its name, and the version of a library.
        seconds: for all batches; 0 where it has a fault.
        fault: why it cannot be taken.
    """

    backend: str
    seconds: float = 0.0
    fault: str = ""

    def __str__(self) -> str:
        return f"{self.backend} {self.fault or format_duration(self.seconds)}"


@dataclass(frozen=True, slots=True, kw_only=True)
class ServedBackend:
    """What the layers of a loaded encoder run on.

    Attributes:
        backend: its name, and the version of a library.
        trials: of what was tried, eager first; nothing where nothing had to be.
        reason: why it is eager though another was asked for.
    """

    backend: str
    trials: tuple[BackendTrial, ...] = ()
    reason: str = ""

    def __str__(self) -> str:
        trials = ", ".join(map(str, self.trials))
        return self.backend + (f" ({trials})" if trials else "") + (f": {self.reason}" if self.reason else "")


def choose(trials: Iterable[BackendTrial], *, wanted: str, least_gain: float) -> BackendTrial:
    """What runs of what was tried, eager first: what was asked for, or the fastest if it takes less than eager by
    `least_gain`, as a share; eager where nothing else can be taken."""
    eager, *others = trials
    able = [trial for trial in others if not trial.fault]
    best = min(able, key=lambda trial: trial.seconds, default=eager)
    if wanted == FASTEST and best.seconds > eager.seconds * (1 - least_gain):
        return eager
    return best
