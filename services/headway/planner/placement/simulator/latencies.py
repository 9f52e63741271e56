"""Stage latencies of models on shapes of groups, as the arrays that the kernels read."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.core.placement import GroupShape, PlacedModel
from headway.core.stage_profile import StageProfile
from headway.planner.placement.simulator.rules import Rules


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Latencies:
    """The latencies of models on shapes under some rules, overheads included.

    Attributes:
        models: names.
        shapes: of groups.
        num_stages: int32 [num_shapes].
        stage_s: float64 [num_shapes, num_models, max_batch_size, max_stages], zero beyond a shape's last stage,
            infinite where a model can't run on a shape. Batches that no profile has are interpolated; those above the
            largest profiled one are infinite.
    """

    models: tuple[str, ...]
    shapes: tuple[GroupShape, ...]
    num_stages: NDArray[np.int32]
    stage_s: NDArray[np.float64]

    @property
    def total_s(self) -> NDArray[np.float64]:
        """The latency of one request alone: float64 [num_shapes, num_models], without the overhead of a request."""
        total: NDArray[np.float64] = np.cumsum(self.stage_s[:, :, 0, :], axis=-1)[
            ..., -1
        ]  # in order, as the router adds
        return total

    @property
    def period_s(self) -> NDArray[np.float64]:
        """The latency of the slowest stage: float64 [num_shapes, num_models]."""
        slowest: NDArray[np.float64] = self.stage_s[:, :, 0, :].max(axis=-1)
        return slowest


def latencies_of(models: Sequence[PlacedModel], shapes: Sequence[GroupShape], rules: Rules) -> Latencies:
    """Returns the latencies of models that answer in one pass; the others can't run. InvalidArgumentError if a profile
    lacks batch size 1.
    """
    num_stages = np.array([shape.pp for shape in shapes], np.int32)
    most_stages = max(num_stages, default=1)
    stage_s = np.full((len(shapes), len(models), rules.max_batch_size, most_stages), np.inf)
    for row, shape in enumerate(shapes):
        for column, model in enumerate(models):
            profile = model.on(shape)
            if profile is not None and profile.generation is None:
                stage_s[row, column, :, : shape.pp] = _of_batches(profile, rules)
                stage_s[row, column, :, shape.pp :] = 0.0
    return Latencies(
        models=tuple(model.name for model in models), shapes=tuple(shapes), num_stages=num_stages, stage_s=stage_s
    )


def _of_batches(profile: StageProfile, rules: Rules) -> NDArray[np.float64]:
    """Returns the stage latencies by batch size, [max_batch_size, pp] seconds."""
    batches = sorted(profile.batches, key=lambda batch: batch.batch_size)
    if not batches or batches[0].batch_size != 1:
        raise InvalidArgumentError(
            f"The profile of {profile.model!r} on {profile.pp}x{profile.op} has no batch size 1.",
            hint="Profile one request alone as well.",
            field="profiles",
        )
    sizes = [batch.batch_size for batch in batches]
    profiled = np.array(
        [batch.stage_latency_s for batch in batches], np.float32 if rules.single_precision else np.float64
    )
    wanted = np.arange(1, rules.max_batch_size + 1)
    columns = [np.interp(wanted, sizes, stage, right=np.inf) for stage in profiled.astype(np.float64).T]
    return np.stack(columns, axis=-1) * (1 + rules.stage_overhead * profile.pp)
