"""The shape of a training plan: what people mean when they ask whether two plans are the same. Pure."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

from headway.core.device_mesh import DeviceMesh
from headway.core.plan.training import TrainingStage, longest_ways, stage_successors
from headway.planner.inter.stage_table import LayeredStep
from headway.planner.intra.loop_roles import LoopRole
from headway.planner.intra.training_graph import TrainingGraph

_COPIES = "copies"


@dataclass(frozen=True, slots=True, kw_only=True)
class StageShape:
    """Attributes:
    micro_batch: examples of one of its own.
    axes: what most of the work is split along, for each axis with several devices: a `LoopRole`, or 'copies' where
        devices do the same; with '+expert' where experts are split along it beside that.
    zero_stage: that most parameters have, by their bytes.
    """

    num_layers: int
    mesh: DeviceMesh
    micro_batch: int
    axes: tuple[str, ...]
    recomputes: bool
    zero_stage: int

    @property
    def parallelism(self) -> str:
        """E.g. 'data 4 x model 2'."""
        sizes = [size for size in self.mesh.shape if size > 1]
        return " x ".join(f"{axis} {size}" for axis, size in zip(self.axes, sizes, strict=True)) or "one device"


@dataclass(frozen=True, slots=True, kw_only=True)
class PlanShape:
    """Attributes:
    depth: stages on the longest way of a micro-batch.
    num_slices: of each micro-batch's tokens.
    micro_batch: examples of one, of the largest ones.
    """

    stages: tuple[StageShape, ...]
    depth: int
    num_slices: int
    num_micro_batches: int
    micro_batch: int

    def __str__(self) -> str:
        runs: list[list[StageShape]] = []
        for stage in self.stages:
            if runs and runs[-1][0].parallelism == stage.parallelism:
                runs[-1].append(stage)
            else:
                runs.append([stage])
        meshes = ", ".join(
            f"{len(run)} times {run[0].parallelism}" if len(run) > 1 else run[0].parallelism for run in runs
        )
        count, number = len(self.stages), self.num_micro_batches
        stages, micro_batches = f"stage{'s' * (count > 1)}", f"micro-batch{'es' * (number > 1)}"
        slices = f" in {self.num_slices} slices" if self.num_slices > 1 else ""
        return f"{count} {stages}{self._deep} ({meshes}), {number} {micro_batches} of {self.micro_batch}{slices}"

    @property
    def _deep(self) -> str:
        return f", {self.depth} on the longest way" if self.depth < len(self.stages) else ""

    def changes_to(self, other: "PlanShape") -> list[str]:
        """What is different in the other one, from what to what."""
        now = other.facts
        return [f"{what} {was} -> {now[what]}" for what, was in self.facts.items() if was != now[what]]

    @property
    def facts(self) -> dict[str, str]:
        """What the shape consists of, by its name."""
        return {
            "stages": f"{len(self.stages)}{self._deep}",
            "slices of tokens": str(self.num_slices),
            "devices of stages": _listed(stage.mesh.num_devices for stage in self.stages),
            "layers of stages": _listed(stage.num_layers for stage in self.stages),
            "parallelism": _listed(stage.parallelism for stage in self.stages),
            "examples of a micro-batch": _listed(stage.micro_batch for stage in self.stages),
            "recomputes": _listed("yes" if stage.recomputes else "no" for stage in self.stages),
            "ZeRO": _listed(stage.zero_stage for stage in self.stages),
        }


def _listed(facts: Iterable[object]) -> str:
    """Once where it is the same for all stages."""
    texts = [str(fact) for fact in facts]
    return texts[0] if len(set(texts)) == 1 else ", ".join(texts)


class Pipeline(Protocol):
    """Stages of a step, found by any method."""

    @property
    def step(self) -> LayeredStep: ...

    @property
    def stages(self) -> tuple[TrainingStage, ...]: ...

    @property
    def num_micro_batches(self) -> int: ...


def shape_of(found: Pipeline) -> PlanShape:
    training = found.step.training
    stages = (
        StageShape(
            num_layers=len(stage.layers),
            mesh=stage.mesh,
            micro_batch=stage.micro_batch or training.graph.batch,
            axes=_axes(training, stage),
            recomputes=stage.recomputes,
            zero_stage=_zero_stage(training, stage),
        )
        for stage in found.stages
    )
    depth = max(longest_ways(stage_successors(found.stages), [1] * len(found.stages)))
    return PlanShape(
        stages=tuple(stages),
        depth=round(depth),
        num_slices=len(found.stages[0].slices) or 1,
        num_micro_batches=found.num_micro_batches,
        micro_batch=training.graph.batch,
    )


def _axes(training: TrainingGraph, stage: TrainingStage) -> tuple[str, ...]:
    flops = {operator.name: operator.flops for operator in training.graph.operators}
    found = []
    for axis, size in enumerate(stage.mesh.shape):
        if size == 1:
            continue
        work: Counter[str] = Counter()
        for sharding in stage.shardings:
            loop = sharding.splits[axis]
            work[training.role(sharding.operator, loop) if loop else _COPIES] += flops[sharding.operator]
        most = max(work, key=lambda what: work[what])
        has_experts = most != LoopRole.EXPERT and work[LoopRole.EXPERT] > 0
        found.append(f"{most}+{LoopRole.EXPERT}" if has_experts else most)
    return tuple(found)


def _zero_stage(training: TrainingGraph, stage: TrainingStage) -> int:
    held: Counter[int] = Counter()
    for each in stage.parameters:
        held[each.zero_stage] += training.tensors[each.parameter].num_bytes
    return max(held, key=lambda level: held[level]) if held else 0
