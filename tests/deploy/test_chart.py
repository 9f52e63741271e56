"""The chart's generated files, and its values beside its schema."""

import json
from collections.abc import Iterator
from typing import Any

import jsonschema
import pytest
import yaml

from deploy.chart.__main__ import CHART, generated
from deploy.chart.values import schema

VALUES = sorted((CHART / "ci").glob("*.yaml"))


def test_generated_files_are_up_to_date() -> None:
    """`make chart` writes them."""
    assert {path: path.read_text() for path in generated()} == generated()


@pytest.mark.parametrize("path", VALUES, ids=lambda path: path.stem)
def test_examples_fit_the_schema(path: Any) -> None:
    jsonschema.validate(yaml.safe_load(path.read_text()), schema())


def test_defaults_fit_the_schema() -> None:
    defaults = yaml.safe_load((CHART / "values.yaml").read_text())
    assert defaults.keys() == schema()["properties"].keys() - {"global"}
    faults = list(jsonschema.Draft7Validator(schema()).iter_errors(defaults))
    assert faults == []


def test_every_object_is_closed_or_has_names_of_the_users() -> None:
    open_ones = [path for path, each in _schemas(schema()) if each.get("type") == "object" and not _is_closed(each)]
    assert open_ones == []


def test_every_value_is_described() -> None:
    assert [path for path, each in _schemas(schema()) if path and not each.get("description")] == []


def _is_closed(each: dict[str, Any]) -> bool:
    more = each.get("additionalProperties")
    return more is False or (isinstance(more, dict) and more.get("type") not in (None, "object"))


def _schemas(each: dict[str, Any], path: str = "") -> Iterator[tuple[str, dict[str, Any]]]:
    yield path, each
    for name, child in (each.get("properties", {}) | each.get("definitions", {})).items():
        yield from _schemas(child, f"{path}.{name}")
    for name in ("items", "additionalProperties"):
        if isinstance(each.get(name), dict):
            yield from _schemas(each[name], f"{path}.{name}")


def test_dashboards_and_rules_are_not_copies() -> None:
    assert (CHART / "dashboards").is_symlink()
    assert (CHART / "rules.yml").is_symlink()
    assert json.loads(next((CHART / "dashboards").glob("*.json")).read_text())["panels"]
