"""The requests to expect, as people write them: `gamma:rate=20,cv=4`, `trace.csv`, `azure:day1.csv,window=3600`."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum

from headway.core.errors import InvalidArgumentError

_EXAMPLE = "Write trace.csv, gamma:rate=20,cv=4, poisson:rate=20, powerlaw:rate=20,alpha=1, azure:FILE or replay:FILE."


class WorkloadKind(StrEnum):
    """The kind of source that requests come from."""

    TRACE = "trace"
    GAMMA = "gamma"
    POISSON = "poisson"
    POWER_LAW = "powerlaw"
    AZURE = "azure"
    REPLAY = "replay"

    @property
    def has_file(self) -> bool:
        return self in (WorkloadKind.TRACE, WorkloadKind.AZURE, WorkloadKind.REPLAY)


_RESAMPLING = {"window": False, "rate_scale": False, "cv_scale": False, "moved": False}
_OPTIONS: Mapping[WorkloadKind, Mapping[str, bool]] = {  # and whether they have to be there
    WorkloadKind.TRACE: _RESAMPLING,
    WorkloadKind.AZURE: _RESAMPLING,
    WorkloadKind.REPLAY: _RESAMPLING,
    WorkloadKind.GAMMA: {"rate": True, "cv": True},
    WorkloadKind.POISSON: {"rate": True},
    WorkloadKind.POWER_LAW: {"rate": True, "alpha": True, "cv": False},
}
_MAY_BE_ZERO = ("alpha", "moved")
_RANGES: Mapping[str, tuple[float, float]] = {  # what arithmetic bears
    "cv": (1e-3, 1e3),
    "cv_scale": (1e-3, 1e3),
    "moved": (0.0, 1e9),
}


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkloadSpec:
    """Attributes:
    file: as it was written; empty for what is generated.
    options: `rate` in requests/s of all models together, `cv` of the times between a model's requests, `alpha` of
        the power law; of a file `window` in seconds, over which rate and CV are fitted to resample it, and what
        they are multiplied with, and `moved`: how far each model's requests move in time, in seconds at most.
    """

    kind: WorkloadKind
    file: str = ""
    options: Mapping[str, float]

    def __str__(self) -> str:
        options = ",".join(f"{name}={value:g}" for name, value in self.options.items())
        if not self.kind.has_file:
            return f"{self.kind}:{options}"
        prefix = "" if self.kind is WorkloadKind.TRACE else f"{self.kind}:"
        return f"{prefix}{self.file}" + (f",{options}" if options else "")


def parse_workload_spec(text: str) -> WorkloadSpec:
    """InvalidArgumentError names the option that is missing, unknown or no number."""
    prefix, colon, rest = text.partition(":")
    if colon and prefix in tuple(WorkloadKind):
        kind = WorkloadKind(prefix)
    elif colon and "=" in rest.partition(",")[0]:
        raise InvalidArgumentError(f"There is no workload '{prefix}'.", hint=_EXAMPLE, field="workload")
    else:
        kind, rest = WorkloadKind.TRACE, text
    parts = [part.strip() for part in rest.split(",")] if rest else []
    num_head = int(kind.has_file and bool(parts))
    while any("=" not in part for part in parts[num_head:]):  # a file's name may have commas
        num_head += 1
    head = ",".join(parts[:num_head])
    options = dict(_option(part, kind) for part in parts[num_head:])
    if bool(head) != kind.has_file:
        problem = f"names no file: '{text}'" if kind.has_file else f"has '{head}', which is no name=value"
        raise InvalidArgumentError(f"The workload {problem}.", hint=_EXAMPLE, field="workload")
    missing = [name for name, is_needed in _OPTIONS[kind].items() if is_needed and name not in options]
    if missing:
        raise InvalidArgumentError(
            f"The workload {kind} lacks {', '.join(missing)}.", hint=f"Add {missing[0]}=NUMBER.", field="workload"
        )
    return WorkloadSpec(kind=kind, file=head, options=options)


def _option(part: str, kind: WorkloadKind) -> tuple[str, float]:
    name, _, number = part.partition("=")
    if name not in _OPTIONS[kind]:
        raise InvalidArgumentError(
            f"The workload {kind} has no option '{name}'.",
            hint=f"It has {', '.join(_OPTIONS[kind])}.",
            field=f"workload.{name}",
        )
    try:
        value = float(number)
    except ValueError:
        value = math.nan
    if not math.isfinite(value) or value < 0 or (value == 0 and name not in _MAY_BE_ZERO):
        raise InvalidArgumentError(
            f"The workload's {name} should be a positive number, not '{number}'.",
            hint=_EXAMPLE,
            field=f"workload.{name}",
        )
    least, most = _RANGES.get(name, (0.0, math.inf))
    if not least <= value <= most:
        raise InvalidArgumentError(
            f"The workload's {name} should be from {least:g} to {most:g}, not {number}.",
            hint=_EXAMPLE,
            field=f"workload.{name}",
        )
    return name, value
