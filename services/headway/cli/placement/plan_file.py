"""Placement plans in files: JSON or YAML, by the ending of the name."""

import json
from pathlib import Path

import yaml

from headway.cli.placement.files import read_bytes
from headway.core.codec import from_document, to_document
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.placement_plan import PLACEMENT_PLAN_VERSION, PlacementPlan

_ENDINGS = (".yaml", ".yml", ".json")


def check_plan_path(path: Path) -> None:
    """Raises InvalidArgumentError where no plan can be written to `path`; called before a long search."""
    if path.suffix not in _ENDINGS:
        raise InvalidArgumentError(f"{path} ends with none of {', '.join(_ENDINGS)}.", hint="Write --out plan.yaml.")
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"There is no directory {path.parent}.", hint="Make it, or name another --out.")


def write_plan(plan: PlacementPlan, path: Path) -> None:
    document = to_document(plan)
    text = json.dumps(document, indent=1) if path.suffix == ".json" else yaml.safe_dump(document, sort_keys=False)
    path.write_text(text)


def read_plan(path: Path) -> PlacementPlan:
    """Reads a plan. InvalidArgumentError names the field that is at fault."""
    loader = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
    try:
        document = yaml.load(read_bytes(path), Loader=loader)
    except yaml.YAMLError as error:
        raise InvalidArgumentError(f"{path} is no plan: {error}.", hint="Make it with `headway plan serve`.") from error
    if isinstance(document, dict) and document.get("version", PLACEMENT_PLAN_VERSION) != PLACEMENT_PLAN_VERSION:
        raise InvalidArgumentError(
            f"{path} is of version {document['version']}, and this Headway reads {PLACEMENT_PLAN_VERSION}.",
            hint="Make it anew with `headway plan serve`.",
        )
    try:
        return from_document(PlacementPlan, document, path="plan")
    except HeadwayError as error:
        raise InvalidArgumentError(f"{path}: {error.message}", hint=error.hint, field=error.field) from error
