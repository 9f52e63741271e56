"""Plans in files: JSON or YAML, by the ending of the name."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import yaml

from headway.cli.placement.files import read_bytes
from headway.core.catalogue.located import check_depth
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.core.plan.document import Plan, from_plan_document, plan_from_document, to_plan_document
from headway.core.plan.placement import PlacementPlan

_ENDINGS = (".yaml", ".yml", ".json")

P = TypeVar("P", bound=Plan)


def check_plan_path(path: Path) -> None:
    """Raises InvalidArgumentError where no plan can be written to `path`; called before a long search."""
    if path.suffix not in _ENDINGS:
        raise InvalidArgumentError(f"{path} ends with none of {', '.join(_ENDINGS)}.", hint="Write --out plan.yaml.")
    if not path.parent.is_dir():
        raise InvalidArgumentError(f"There is no directory {path.parent}.", hint="Make it, or name another --out.")


def write_plan(plan: Plan, path: Path) -> None:
    document = to_plan_document(plan)
    text = json.dumps(document, indent=1) if path.suffix == ".json" else yaml.safe_dump(document, sort_keys=False)
    path.write_text(text)


def read_plan(path: Path) -> Plan:
    """Reads a plan of any kind. InvalidArgumentError names the file and the field that is at fault."""
    return _read(path, from_plan_document)


def read_placement_plan(path: Path) -> PlacementPlan:
    """Reads a placement plan; InvalidArgumentError also where it is a plan of another kind."""
    return _read(path, lambda document: plan_from_document(PlacementPlan, document))


def _read(path: Path, convert: Callable[[Any], P]) -> P:
    document = _document_in(path)
    try:
        return convert(document)
    except HeadwayError as error:
        raise InvalidArgumentError(f"{path}: {error.message}", hint=error.hint, field=error.field) from error


def _document_in(path: Path) -> Any:
    content = read_bytes(path)
    try:
        if path.suffix == ".json":
            return json.loads(content)
        check_depth(content)
        return yaml.load(content, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader))
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is no plan: {error}.", hint="Make it with `headway plan serve`.") from error
