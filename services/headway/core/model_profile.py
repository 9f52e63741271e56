"""The profile of a model: the costs of its operators, layers and the whole of it on a kind of hardware."""

import hashlib
from collections.abc import Sequence
from dataclasses import dataclass
from statistics import median

from headway.core.catalogue.figure import Provenance
from headway.core.cluster import Hardware
from headway.core.profiling_units import Counts, Layer, OperatorGroup, ProfilingUnits


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of a program on a kind of hardware; equal work on equal hardware and software is measured once.

    Attributes:
        measurement_id: names program, hardware and versions.
        name: what was measured, for people.
        deviation: of a placed program, by how much its results differ from torch's, as a share of the largest.
        least_s, num_contended: as of the timing.
    """

    measurement_id: str
    name: str
    hardware: Hardware
    seconds: float
    relative_error: float
    num_repeats: int
    measured_at_s: float
    deviation: float = 0.0
    least_s: float = 0.0
    num_contended: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """The cost of one run of a program.

    Attributes:
        provenance: how the cost came to be known; None where it is not known, and `note` says why.
        note: why the cost is not known, or was estimated.
        deviation, least_s, num_repeats, num_contended: as of the measurement.
    """

    seconds: float = 0.0
    provenance: Provenance | None = None
    relative_error: float = 0.0
    note: str = ""
    deviation: float = 0.0
    least_s: float = 0.0
    num_repeats: int = 0
    num_contended: int = 0

    @property
    def is_known(self) -> bool:
        return self.provenance is not None


UNKNOWN = Cost(note="not measured")


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfile:
    """Attributes:
    costs: of every program that the subject names.
    num_measured, num_cached: programs that were timed for this profile, and that had been before.
    """

    profile_id: str
    subject: ProfilingUnits
    hardware: Hardware
    costs: dict[str, Cost]
    num_measured: int
    num_cached: int
    created_at_s: float

    def seconds(self, counts: Counts) -> float:
        """Returns the seconds of `counts` runs of each program; programs of unknown cost count nothing."""
        return sum(count * self.costs[program].seconds for program, count in counts.items())

    def cost(self, program: str) -> Cost:
        return self.costs.get(program, UNKNOWN)

    def hottest(self) -> list[OperatorGroup]:
        """Returns the operators, those that take the longest in all first."""
        return sorted(self.subject.operators, key=lambda group: -group.count * self.costs[group.program].seconds)

    def phase_s(self, phase: str) -> float:
        """Returns the seconds of all operators of 'forward', 'backward' or 'optimizer'."""
        groups = (group for group in self.subject.operators if group.phase == phase)
        return sum(group.count * self.costs[group.program].seconds for group in groups)

    @property
    def passes_s(self) -> float:
        """The sum of what `subject.program` consists of."""
        return self.phase_s("forward") + self.phase_s("backward")

    @property
    def excess(self) -> float | None:
        """By what share the whole takes longer than its operators; None where either is not known."""
        whole = self.cost(self.subject.program)
        counted = [group for group in self.subject.operators if group.phase != "optimizer"]
        if not whole.is_known or not all(self.costs[group.program].is_known for group in counted) or not self.passes_s:
            return None
        return whole.seconds / self.passes_s - 1

    def split(self, num_stages: int) -> list[Sequence[Layer]]:
        """Consecutive layers in stages, the longest of which takes as little as can be."""
        layers = self.subject.layers
        seconds = [sum(map(self.seconds, (layer.forward, layer.backward, layer.optimizer))) for layer in layers]
        num_stages = min(num_stages, len(layers))
        nothing: tuple[float, list[int]] = (0.0, [])
        impossible: tuple[float, list[int]] = (float("inf"), [])
        best = [[nothing] + [impossible] * len(layers)]
        for _ in range(num_stages):
            row = [impossible]
            for end in range(1, len(layers) + 1):
                options = (
                    (max(best[-1][start][0], sum(seconds[start:end])), [*best[-1][start][1], end])
                    for start in range(end)
                )
                row.append(min(options))
            best.append(row)
        ends = best[-1][-1][1]
        return [layers[start:end] for start, end in zip([0, *ends], ends, strict=False)]


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelProfileSummary:
    """A summary of a model profile, for lists.

    Attributes:
        num_programs: the number of programs whose cost is known.
        seconds: the seconds of all operators together.
        relative_error: the median of the programs' known relative errors.
        is_stale: whether no running worker has this hardware and these versions.
    """

    profile_id: str
    model: str
    hardware: Hardware
    is_training: bool
    num_programs: int
    seconds: float
    relative_error: float
    created_at_s: float
    is_stale: bool


def summary_of_model(profile: ModelProfile, *, is_stale: bool) -> ModelProfileSummary:
    known = [cost.relative_error for cost in profile.costs.values() if cost.is_known]
    return ModelProfileSummary(
        profile_id=profile.profile_id,
        model=profile.subject.model,
        hardware=profile.hardware,
        is_training=profile.subject.is_training,
        num_programs=len(known),
        seconds=profile.passes_s + profile.phase_s("optimizer"),
        relative_error=median(known) if known else 0.0,
        created_at_s=profile.created_at_s,
        is_stale=is_stale,
    )


def model_profile_id(subject: ProfilingUnits, hardware: Hardware) -> str:
    """The same for the same graph, in training or not, on the same hardware with the same versions."""
    return _hashed("model", subject.graph_hash, subject.program, hardware.content_hash)


def measurement_id(program: str, hardware: Hardware) -> str:
    """Returns the id of a program's measurement. It follows from its content hash, which covers operators, shapes,
    strides, dtypes and attributes.
    """
    return _hashed("measurement", program, hardware.content_hash)


def _hashed(*parts: str) -> str:
    return hashlib.sha256(":".join(parts).encode()).hexdigest()[:16]
