"""Where a placement of pipeline tasks comes from: a name, a file, or a training plan."""

import json
from dataclasses import replace
from pathlib import Path

from headway.cli.placement.files import read_bytes, read_text
from headway.cli.plan_file import read_plan
from headway.core.errors import InvalidArgumentError
from headway.core.pipeline_shapes import SHAPES, ShapeOptions, named_placement, with_lag, without_backward
from headway.core.plan.training import TrainingPlan
from headway.core.schedule import TaskPlacement
from headway.core.schedule_file import read_placement
from headway.core.training_placement import training_placement


def find_placement(
    text: str, *, num_devices: int | None, options: ShapeOptions, memory: float | None
) -> tuple[TaskPlacement, int | None]:
    """Finds a placement, and the micro-batches of the training plan that it is from.

    Args:
        text: a name; a file; a file, a colon and the name of one of its placements.
        num_devices: of a named one; a file says itself how many.

    Raises:
        InvalidArgumentError: there is no such placement, or it is wrong.
    """
    count = None
    if text in SHAPES:
        placement = named_placement(text, 4 if num_devices is None else num_devices, options)
    else:
        placement, count = _in_file(text, splits_backward=options.splits_backward)
        placement = with_lag(placement, options.lag)
        if not options.is_training:
            placement = without_backward(placement)
        if num_devices not in (None, placement.num_devices):
            raise InvalidArgumentError(
                f"{text} is for {placement.num_devices} devices, not {num_devices}.",
                hint="Leave out --devices.",
                field="devices",
            )
    return (placement if memory is None else replace(placement, memory=memory)), count


def _in_file(text: str, *, splits_backward: bool) -> tuple[TaskPlacement, int | None]:
    path, name = Path(text), None
    if not path.is_file() and ":" in text:
        before, _, name = text.rpartition(":")
        path = Path(before)
    if not path.is_file():
        raise InvalidArgumentError(
            f"There is no placement '{text}'.",
            hint=f"Name a file, or one of {', '.join(SHAPES)}.",
            field="placement",
        )
    if path.suffix in (".yaml", ".yml") or _is_plan(path):
        plan = read_plan(path)
        if not isinstance(plan, TrainingPlan):
            raise InvalidArgumentError(
                f"{path} is no training plan.", hint="Make one with `headway plan train --out`.", field="placement"
            )
        return training_placement(plan, splits_backward=splits_backward), plan.num_micro_batches
    return read_placement(read_text(path), file=str(path), name=name), None


def _is_plan(path: Path) -> bool:
    try:
        document = json.loads(read_bytes(path))
    except (ValueError, RecursionError):
        return False
    return isinstance(document, dict) and "kind" in document
