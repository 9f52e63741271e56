"""Rejects placements and workloads that cannot be simulated."""

from collections.abc import Sequence

import numpy as np

from headway.core.errors import InvalidArgumentError
from headway.core.placement import PlacedModel, Placement
from headway.planner.placement.workload import Workload


def check_workload(workload: Workload, models: Sequence[PlacedModel]) -> None:
    """Checks a workload; InvalidArgumentError names the field and the first request (from 0) at fault."""
    count = len(workload)
    if count == 0:
        raise InvalidArgumentError(
            "The workload has no request.", hint="Give a trace with at least one request.", field="workload"
        )
    if len(workload.model) != count or len(workload.slo_s) != count:
        raise InvalidArgumentError(
            f"{count} arrivals, {len(workload.model)} models and {len(workload.slo_s)} SLOs are not of one length.",
            field="workload",
        )
    _none(~np.isfinite(workload.arrival_s) | (workload.arrival_s < 0), "arrival_s", "is no time from 0 on")
    _none(np.diff(workload.arrival_s, prepend=0.0) < 0, "arrival_s", "comes before the one above it", "Sort the trace.")
    _none((workload.model < 0) | (workload.model >= len(workload.models)), "model", "names no model")
    _none(~(workload.slo_s > 0), "slo_s", "has an SLO that is not above 0", "Use infinity for none.")
    _check_lengths(workload, [model.name for model in models if model.generates])
    unknown = [name for name in workload.models if name not in {model.name for model in models}]
    if unknown:
        raise InvalidArgumentError(
            f"The workload has requests for {unknown[0]!r}, which is not among the models.",
            hint="Add it to the models, or leave its requests out.",
            field="models",
        )


def check_placement(placement: Placement, models: Sequence[PlacedModel]) -> None:
    """Checks a placement; InvalidArgumentError names the group and the model."""
    by_name = {model.name: model for model in models}
    if len(by_name) < len(models):
        names = [model.name for model in models]
        twice = next(name for name in names if names.count(name) > 1)
        raise InvalidArgumentError(f"Two models are named {twice!r}.", hint="Name each apart.", field="models")
    for index, group in enumerate(placement.groups):
        for name in group.models:
            if name not in by_name:
                raise InvalidArgumentError(
                    f"Group {index} has {name!r}, which is not among the models.", field="groups"
                )
            if by_name[name].on(group.shape) is None:
                raise InvalidArgumentError(
                    f"Group {index} is {group.shape}, for which {name!r} has no profile.",
                    hint=f"It has {', '.join(f'{each.pp}x{each.op}' for each in by_name[name].profiles) or 'none'}.",
                    field="groups",
                )
        if len(set(group.models)) < len(group.models):
            raise InvalidArgumentError(f"Group {index} has a model twice.", field="groups")
        alone = [name for name in group.models if (profile := by_name[name].on(group.shape)) and profile.needs_group]
        if alone and len(group.models) > 1:
            raise InvalidArgumentError(
                f"Group {index} has other models beside {alone[0]!r}, and nothing says how they share its memory.",
                hint="Give it a group to itself, or estimate it anew: headway plan serve.",
                field="groups",
            )


def _check_lengths(workload: Workload, generating: Sequence[str]) -> None:
    numbers = [number for number, name in enumerate(workload.models) if name in generating]
    lengths, needs = workload.lengths, np.isin(workload.model, numbers)
    is_known = np.zeros(len(workload), np.bool_) if lengths is None else (lengths.prompt > 0) & (lengths.output > 0)
    _none(needs & ~is_known, "lengths", "is for a model that generates and lacks its numbers of tokens")


def _none(wrong: "np.ndarray[tuple[int], np.dtype[np.bool_]]", field: str, fault: str, hint: str = "") -> None:
    if wrong.any():
        raise InvalidArgumentError(f"Request {int(np.argmax(wrong))} of the workload {fault}.", hint=hint, field=field)
