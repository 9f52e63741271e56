"""A training plan as a picture: which stage has which devices, and what fills their memory."""

from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from headway.cli.figure_file import write_figure
from headway.core.plan.training import TrainingPlan
from headway.core.training_cluster import NodeGroup

if TYPE_CHECKING:
    from matplotlib.axes import Axes

_PARTS = ("weights", "gradients", "optimizer", "activations", "workspace")
_COLORS = ("#4c72b0", "#dd8452", "#55a868", "#c44e52", "#8172b3")
_MOST_LABELS = 24
_GIB = 1024**3


def draw_training_plan(plan: TrainingPlan, path: Path) -> None:
    """Draws the nodes with their devices, coloured by stage, above the memory of a device of each stage."""
    from matplotlib.figure import Figure

    num_groups = len(plan.cluster.groups)
    figure = Figure(figsize=(8, 3.5 + 2.5 * num_groups), layout="constrained")
    *maps, bars = figure.subplots(num_groups + 1, 1, squeeze=True)
    first = 0
    for number, (axes, group) in enumerate(zip(maps, plan.cluster.groups, strict=True)):
        _draw_devices(axes, plan, number, group, first)
        first += group.num_devices
    _draw_memory(bars, plan)
    title = f"{plan.model} on {plan.cluster.label}"
    figure.suptitle(f"{title}: {plan.iteration_s:.3g} s an iteration")
    write_figure(figure, path, title=title)


def _draw_devices(axes: "Axes", plan: TrainingPlan, number: int, group: NodeGroup, first: int) -> None:
    """A column for each node, a row for each device of a node."""
    stages = np.full(group.num_devices, np.nan)
    for stage_number, stage in enumerate(plan.stages):
        if stage.group == number:
            begin = stage.first_device - first
            stages[begin : begin + stage.mesh.num_devices] = stage_number
    grid = stages.reshape(group.num_nodes, group.devices_per_node).T
    most = max(len(plan.stages) - 1, 1)
    axes.imshow(grid, aspect="auto", cmap="viridis", vmin=0, vmax=most, interpolation="nearest", alpha=0.6)
    for stage_number, stage in enumerate(plan.stages):
        if stage.group == number and len(plan.stages) <= _MOST_LABELS:
            begin, num_devices = stage.first_device - first, stage.mesh.num_devices
            nodes, rows = np.divmod(np.arange(begin, begin + num_devices), group.devices_per_node)
            label = f"stage {stage_number}\n{stage.mesh}"
            if plan.has_own_sizes:
                label += f"\nof {plan.micro_batch_of(stage)}"
            axes.text(nodes.mean(), rows.mean(), label, ha="center", va="center", fontsize=8)
    axes.set_xlabel(f"node ({group.label})")
    axes.set_ylabel("device")
    axes.set_xticks(np.unique(np.linspace(0, group.num_nodes - 1, min(group.num_nodes, 16)).astype(int)))
    axes.set_yticks(range(group.devices_per_node))


def _draw_memory(axes: "Axes", plan: TrainingPlan) -> None:
    """A bar for each stage: what one of its devices holds, and a line at what it has."""
    numbers = np.arange(len(plan.stages))
    bottom = np.zeros(len(plan.stages))
    for part, color in zip(_PARTS, _COLORS, strict=True):
        gib = np.array([getattr(stage.memory, f"{part}_bytes") / _GIB for stage in plan.stages])
        axes.bar(numbers, gib, bottom=bottom, label=part, color=color)
        bottom += gib
    capacities = [plan.cluster.groups[stage.group].memory_bytes / _GIB for stage in plan.stages]
    axes.hlines(capacities, numbers - 0.45, numbers + 0.45, colors="black", linewidth=1)
    axes.set_xlabel("stage")
    axes.set_ylabel("memory of each device (GiB)")
    axes.set_xticks(numbers if len(numbers) <= _MOST_LABELS else numbers[:: len(numbers) // _MOST_LABELS + 1])
    axes.legend(ncols=len(_PARTS), fontsize=8, loc="upper center", bbox_to_anchor=(0.5, 1.18))
