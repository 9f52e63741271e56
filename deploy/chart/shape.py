"""Shapes of values: JSON schemas that are closed at every depth."""

from collections.abc import Mapping
from typing import Any, TypeAlias

Schema: TypeAlias = dict[str, Any]


def text(description: str, *, pattern: str = "", least: int = 0) -> Schema:
    schema: Schema = {"type": "string", "description": description}
    return schema | ({"pattern": pattern} if pattern else {}) | ({"minLength": least} if least else {})


def choice(description: str, *options: str) -> Schema:
    return {"type": "string", "enum": list(options), "description": description}


def flag(description: str) -> Schema:
    return {"type": "boolean", "description": description}


def whole(description: str, *, least: int = 0, most: int | None = None) -> Schema:
    schema: Schema = {"type": "integer", "minimum": least, "description": description}
    return schema if most is None else schema | {"maximum": most}


def number(description: str, *, above: float | None = None, least: float | None = None) -> Schema:
    schema: Schema = {"type": "number", "description": description}
    return (
        schema | ({} if above is None else {"exclusiveMinimum": above}) | ({} if least is None else {"minimum": least})
    )


def fields(description: str, *required: str, of: Mapping[str, Schema], exactly_one: bool = False) -> Schema:
    """An object of these fields and no others.

    Args:
        required: fields that may not be left out.
        exactly_one: whether it has one of them, neither none nor several.
    """
    schema: Schema = {
        "type": "object",
        "description": description,
        "additionalProperties": False,
        "properties": dict(of),
    }
    if required:
        schema["required"] = list(required)
    return schema | ({"minProperties": 1, "maxProperties": 1} if exactly_one else {})


def listing(description: str, item: Schema, *, least: int = 0, unique: bool = False) -> Schema:
    schema: Schema = {"type": "array", "description": description, "items": item}
    return schema | ({"minItems": least} if least else {}) | ({"uniqueItems": True} if unique else {})


def named(description: str, value: Schema) -> Schema:
    """An object whose names are the user's, such as labels; all of its values are alike."""
    return {"type": "object", "description": description, "additionalProperties": value}


def reference(name: str, description: str) -> Schema:
    """A shape of the schema's definitions, described for its place."""
    return {"allOf": [{"$ref": f"#/definitions/{name}"}], "description": description}
