"""The reference of the chart's values, as a page of the documentation."""

import json
from collections.abc import Iterator
from typing import Any

from deploy.chart.shape import Schema

_HEAD = """# Values of the chart

Made of `helm/headway/values.schema.json` by `make chart`; how they are used is in [Kubernetes](kubernetes.md). A `[]`
stands for each entry of a list. Parts of Kubernetes' own objects (`resources`, `affinity`, a volume, ...) are as the
API has them; the schema closes them too.

| value | type | default | meaning |
|---|---|---|---|
"""


def values_reference(values: dict[str, Schema], defaults: dict[str, Any]) -> str:
    """A Markdown table with a row for every value that is not one of Kubernetes' own parts."""
    rows = (row for name, schema in values.items() for row in _rows(name, schema, defaults.get(name)))
    return _HEAD + "".join(f"{row}\n" for row in rows)


def _rows(path: str, schema: Schema, default: Any) -> Iterator[str]:
    if schema.get("properties"):
        for name, child in schema["properties"].items():
            yield from _rows(f"{path}.{name}", child, default.get(name) if isinstance(default, dict) else None)
        return
    yield f"| `{path}` | {_kind(schema)} | {_shown(default)} | {_meaning(schema)} |"
    item = schema.get("items", {})
    if item.get("properties"):
        for name, child in item["properties"].items():
            required = " (required)" if name in item.get("required", ()) else ""
            yield from (
                row.replace(" | ", f"{required} | ", 1) if required else row
                for row in _rows(f"{path}[].{name}", child, None)
            )


def _kind(schema: Schema) -> str:
    if "enum" in schema:
        return " or ".join(f"`{option or '(empty)'}`" for option in schema["enum"])
    if "allOf" in schema:
        return str(schema["allOf"][0]["$ref"]).rsplit("/", 1)[1]
    if schema["type"] == "array":
        return f"list of {_kind(schema['items'])}"
    if isinstance(schema.get("additionalProperties"), dict):
        return "map"
    return str(schema["type"])


def _shown(default: Any) -> str:
    return "" if default in (None, "", [], {}) else f"`{json.dumps(default)}`"


def _meaning(schema: Schema) -> str:
    bounds = [
        f"{word} {schema[key]}" for key, word in (("minimum", "At least"), ("maximum", "at most")) if schema.get(key)
    ]
    return str(schema["description"]).replace("|", "\\|") + (f" {', '.join(bounds).capitalize()}." if bounds else "")
