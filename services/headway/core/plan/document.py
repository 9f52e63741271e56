"""The one document form of all plans: what kind of plan it is, of which version, and then the plan's own fields."""

from collections.abc import Mapping
from enum import StrEnum
from typing import Any, TypeVar

from headway.core.codec import from_document, to_document
from headway.core.errors import InvalidArgumentError
from headway.core.plan.placement import PLACEMENT_PLAN_VERSION, PlacementPlan
from headway.core.plan.serving import ServingPlan
from headway.core.plan.training import TRAINING_PLAN_VERSION, TrainingPlan

Plan = ServingPlan | PlacementPlan | TrainingPlan
P = TypeVar("P", bound=Plan)


class PlanKind(StrEnum):
    """The kinds of plans."""

    SERVING = "serving"
    PLACEMENT = "placement"
    TRAINING = "training"


_TYPES: Mapping[PlanKind, type[Plan]] = {
    PlanKind.SERVING: ServingPlan,
    PlanKind.PLACEMENT: PlacementPlan,
    PlanKind.TRAINING: TrainingPlan,
}
_KINDS: Mapping[type, PlanKind] = {each: kind for kind, each in _TYPES.items()}
VERSIONS: Mapping[PlanKind, int] = {
    PlanKind.SERVING: 1,
    PlanKind.PLACEMENT: PLACEMENT_PLAN_VERSION,
    PlanKind.TRAINING: TRAINING_PLAN_VERSION,
}

_HINT = "`headway plan serve --out` and `headway plan train --out` write one."

# Plans without a kind are from before there were kinds; a field that only theirs have tells them apart.
_KIND_BY_FIELD = {"assignments": PlanKind.SERVING, "placement": PlanKind.PLACEMENT}


def kind_of(plan: Plan) -> PlanKind:
    return _KINDS[type(plan)]


def to_plan_document(plan: Plan) -> dict[str, Any]:
    """A plan as a plain document: `kind` and `version` first, then its fields."""
    kind = kind_of(plan)
    return {"kind": kind.value, "version": VERSIONS[kind], **to_document(plan)}


def from_plan_document(document: Any, *, path: str = "plan", is_stored: bool = False) -> Plan:
    """Reads a plan of any kind.

    Args:
        path: what errors call the document.
        is_stored: a process wrote it; see `from_document`.

    InvalidArgumentError names the field that is at fault: a kind that is not known, a version that is newer than this
    program, or one of the plan's own.
    """
    if not isinstance(document, Mapping):
        raise InvalidArgumentError(f"{path} should be a plan, not {document!r}.", hint=_HINT, field=path)
    kind = _kind_in(document, path)
    _check_version(document, kind, path)
    own = {name: value for name, value in document.items() if name not in ("kind", "version")}
    return from_document(_TYPES[kind], own, path=path, is_stored=is_stored)


def plan_from_document(kind: type[P], document: Any, *, path: str = "plan", is_stored: bool = False) -> P:
    """Reads a plan that should be a `kind`; InvalidArgumentError also where it is a plan of another kind."""
    plan = from_plan_document(document, path=path, is_stored=is_stored)
    if not isinstance(plan, kind):
        raise InvalidArgumentError(
            f"{path}.kind is {kind_of(plan)}, and a {_KINDS[kind]} plan is needed.",
            hint=f"Name a {_KINDS[kind]} plan.",
            field=f"{path}.kind",
        )
    return plan


def _kind_in(document: Mapping[str, Any], path: str) -> PlanKind:
    named = document.get("kind")
    if named is None:
        found = [kind for field, kind in _KIND_BY_FIELD.items() if field in document]
        if found:
            return found[0]
        raise InvalidArgumentError(f"{path} has no field 'kind'.", hint=_HINT, field=f"{path}.kind")
    try:
        return PlanKind(named)
    except ValueError:
        raise InvalidArgumentError(
            f"{path}.kind is {named!r}, which is no kind of plan.",
            hint=f"Known are {', '.join(PlanKind)}; a newer Headway may know others.",
            field=f"{path}.kind",
        ) from None


def _check_version(document: Mapping[str, Any], kind: PlanKind, path: str) -> None:
    version, known = document.get("version", VERSIONS[kind]), VERSIONS[kind]
    if not isinstance(version, int) or isinstance(version, bool) or version < 1:
        raise InvalidArgumentError(
            f"{path}.version should be a number from 1 on, not {version!r}.",
            hint=f"This Headway writes {known}.",
            field=f"{path}.version",
        )
    if version > known:
        raise InvalidArgumentError(
            f"{path}.version is {version}, and this Headway reads {kind} plans up to version {known}.",
            hint="Use a newer Headway, or make the plan anew.",
            field=f"{path}.version",
        )
