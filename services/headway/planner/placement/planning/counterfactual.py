"""Another placement, as people write it: `groups=4x2,4x2`, `models=chat@0,1;code@2`, or both. Pure."""

import re
from dataclasses import replace
from itertools import chain

from headway.core.device_kind import DeviceKind, first_fit, most_groups
from headway.core.errors import InvalidArgumentError
from headway.core.placement import GroupShape, PlacedGroup, Placement
from headway.core.placement_problem import PlacementProblem
from headway.planner.placement.planning.prediction import rules_of
from headway.planner.placement.search.evaluator import Evaluator
from headway.planner.placement.search.greedy import select_unserved
from headway.planner.placement.search.problem import make_problem
from headway.planner.placement.workload import Workload

_SHAPE = re.compile(r"(?:(\d+)\*)?([1-9]\d*)x([1-9]\d*)(?:@(.+))?")
_CLAUSES = re.compile(r"\s+(?=groups=|models=)")
_EXAMPLE = "Write groups=8x1 (stages x devices of each), groups=4x2,4x2 or models=chat@0,1;code@2."


def instead(text: str, *, problem: PlacementProblem, placement: Placement, workload: Workload) -> Placement:
    """Returns the placement that is asked for in place of `placement`.

    One shape alone is repeated until the devices are used up; several are taken as they are, `3*2x1` for three. Where
    there are several kinds of devices `2x1@A100-40` is on those of one, and a shape alone without a kind on all. Models
    go where they are said to; where only groups are, the paper's heuristic of algorithm 3 selects them on `workload`.

    Raises:
        InvalidArgumentError: names what is no group or no model.
    """
    clauses = dict(_clause(part) for part in _CLAUSES.split(text.strip()) if part)
    if not clauses:
        raise InvalidArgumentError("There is nothing to try instead.", hint=_EXAMPLE, field="instead")
    if "groups" in clauses:
        shapes = _shapes(clauses["groups"], problem)
        groups = tuple(PlacedGroup(shape=shape, models=()) for shape in shapes)
        placement = Placement(groups=groups) if "models" in clauses else _select(shapes, problem, workload)
    if "models" in clauses:
        placement = _move(placement, clauses["models"], problem)
    return placement


def _clause(part: str) -> tuple[str, str]:
    name, equals, value = part.partition("=")
    if name not in ("groups", "models") or not equals or not value:
        raise InvalidArgumentError(f"'{part}' is nothing that can be tried.", hint=_EXAMPLE, field="instead")
    return name, value


def _shapes(text: str, problem: PlacementProblem) -> tuple[GroupShape, ...]:
    shapes: list[GroupShape] = []
    for part in text.split(","):
        match = _SHAPE.fullmatch(part.strip())
        if match is None:
            raise InvalidArgumentError(f"'{part}' is no shape of a group.", hint=_EXAMPLE, field="instead")
        is_repeated = "," not in text and match[1] is None
        for kind in _kinds(match[4] or "", problem, all_of_them=is_repeated):
            shape = GroupShape(pp=int(match[2]), op=int(match[3]), device=kind.device)
            shapes += [shape] * (_most(shape, kind) if is_repeated else int(match[1] or 1))
    for kind in problem.kinds:
        if sum(shape.num_devices for shape in shapes if shape.device == kind.device) > kind.num_devices or not shapes:
            raise InvalidArgumentError(
                f"The groups {text} do not fit on {kind.num_devices} devices{kind.device and f' {kind.device}'}.",
                hint="Ask for fewer or smaller ones.",
                field="instead",
            )
        parts = [kind.span(shape.pp, shape.op) for shape in shapes if shape.device == kind.device]
        has_room = all(parts) and first_fit(sorted(chain.from_iterable(parts), reverse=True), kind.nodes) is not None
        if kind.is_joined and not has_room:
            raise InvalidArgumentError(
                f"The groups {text} do not fit on nodes of {kind.largest_node} devices.",
                hint="A group that spans nodes has as many whole stages in each as fit; ask for fewer or smaller ones.",
                field="instead",
            )
    return tuple(shapes)


def _most(shape: GroupShape, kind: DeviceKind) -> int:
    """Groups that use up the devices of a kind; where groups may span nodes, as far as the nodes have room."""
    parts = kind.span(shape.pp, shape.op)
    return most_groups(parts, kind.nodes) if kind.is_joined and parts else kind.num_devices // shape.num_devices


def _kinds(device: str, problem: PlacementProblem, *, all_of_them: bool) -> list[DeviceKind]:
    """Returns the kinds of device that a shape with this device, or with none, is meant for."""
    kinds = problem.kinds
    if not device and (all_of_them or len(kinds) == 1):
        return list(kinds)
    found = [kind for kind, cluster in zip(kinds, problem.clusters, strict=True) if cluster.device == device]
    if not found:
        raise InvalidArgumentError(
            f"There are no devices '{device}'." if device else "Nobody says on which devices the groups are.",
            hint=f"Write groups=4x2@{problem.cluster.device}; there are "
            f"{', '.join(cluster.device for cluster in problem.clusters)}.",
            field="instead",
        )
    return found


def _select(shapes: tuple[GroupShape, ...], problem: PlacementProblem, workload: Workload) -> Placement:
    searched = make_problem(problem.placed_models, workload, rules_of(problem), problem.kinds)
    largest = max(kind.largest_node for kind in problem.kinds)
    for shape in shapes:
        if shape not in searched.shapes:
            raise InvalidArgumentError(
                f"No model has a profile for groups of {shape} on nodes of {largest} devices.",
                hint=f"There are profiles for {', '.join(map(str, searched.shapes)) or 'none'}.",
                field="instead",
            )
    numbers = sorted(searched.shapes.index(shape) for shape in shapes)
    return searched.placement(select_unserved(Evaluator(searched), numbers, searched.everything))


def _move(placement: Placement, text: str, problem: PlacementProblem) -> Placement:
    """Puts each named model on the groups that are said, and on no others."""
    groups = list(placement.groups)
    known = {model.name for model in problem.models}
    for part in text.split(";"):
        name, at, numbers = part.partition("@")
        if name not in known:
            raise InvalidArgumentError(
                f"There is no model '{name}'.", hint=f"There are {', '.join(sorted(known))}.", field="instead"
            )
        wanted = numbers.split(",") if at and numbers else []
        if not all(number.isdecimal() and int(number) < len(groups) for number in wanted) or not at:
            raise InvalidArgumentError(
                f"'{part}' names a group that is none of 0 to {len(groups) - 1}.", hint=_EXAMPLE, field="instead"
            )
        for number, group in enumerate(groups):
            others = tuple(model for model in group.models if model != name)
            models = (*others, name) if str(number) in wanted else others
            groups[number] = replace(group, models=models)
    return Placement(groups=tuple(groups))
