"""Requests over time, as arrays."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

Selection = slice | NDArray[np.int64] | NDArray[np.bool_]


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Lengths:
    """Tokens of each request, int32 [num_requests]; 0 where they are unknown, or the model does not generate."""

    prompt: NDArray[np.int32]
    output: NDArray[np.int32]

    def take(self, selection: Selection) -> "Lengths":
        return Lengths(prompt=self.prompt[selection], output=self.output[selection])


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Workload:
    """A workload: requests in the order of their arrival.

    Attributes:
        models: names; `model` counts in them.
        arrival_s: float64 [num_requests], not falling, from 0 on.
        model: int32 [num_requests].
        slo_s: float64 [num_requests], of the whole answer; infinite where a request has none.
        lengths: None where no model generates.
    """

    models: tuple[str, ...]
    arrival_s: NDArray[np.float64]
    model: NDArray[np.int32]
    slo_s: NDArray[np.float64]
    lengths: Lengths | None = None

    def __len__(self) -> int:
        return len(self.arrival_s)

    def take(self, selection: Selection, *, start_s: float = 0.0) -> "Workload":
        """Some of them, whose time begins at `start_s`."""
        return Workload(
            models=self.models,
            arrival_s=self.arrival_s[selection] - start_s,
            model=self.model[selection],
            slo_s=self.slo_s[selection],
            lengths=None if self.lengths is None else self.lengths.take(selection),
        )

    def moved(self, shift_s: NDArray[np.float64], *, span_s: float) -> "Workload":
        """Returns the workload with each model's requests later by its shift, float64 [num_models]; cyclic in [0,
        span_s).
        """
        arrival_s = np.mod(self.arrival_s + shift_s[self.model], span_s)
        return replace(self, arrival_s=arrival_s).take(np.argsort(arrival_s, kind="stable"))


def concatenate(parts: Sequence[Workload], starts_s: Sequence[float]) -> Workload:
    """One after the other; each begins at its own time."""
    lengths = [part.lengths for part in parts if part.lengths is not None]
    return replace(
        parts[0],
        arrival_s=np.concatenate([part.arrival_s + start_s for part, start_s in zip(parts, starts_s, strict=True)]),
        model=np.concatenate([part.model for part in parts]),
        slo_s=np.concatenate([part.slo_s for part in parts]),
        lengths=Lengths(
            prompt=np.concatenate([each.prompt for each in lengths]),
            output=np.concatenate([each.output for each in lengths]),
        )
        if lengths
        else None,
    )
