"""Values that a model wrote as bare text, in the type that a JSON schema gives them."""

import json
from collections.abc import Mapping
from typing import Any, NoReturn

from headway.gateway.tools.python_literal import read_literal

_KINDS = {str: "string", bool: "boolean", int: "integer", float: "number", list: "array", dict: "object"}
_NULL = "null"


def is_text(schema: Any) -> bool:
    """Whether a value can only be a text; so it is where nothing is known of it."""
    return not isinstance(schema, Mapping) or _kinds(schema) == {"string"}


def typed(text: str, schema: Any) -> Any:
    """The value of a text: as JSON or Python write it, where the schema allows its type; else the text itself."""
    kinds = _kinds(schema) if isinstance(schema, Mapping) else frozenset({"string"})
    try:
        value = _read(text)
    except ValueError:
        return text
    kind = _KINDS.get(type(value), _NULL)
    is_allowed = not kinds or kind in kinds or (kind == "integer" and "number" in kinds)
    return text if not is_allowed and "string" in kinds else value


def _read(text: str) -> Any:
    try:
        return json.loads(text, parse_constant=_refuse)
    except (ValueError, RecursionError):
        return read_literal(text)


def _refuse(constant: str) -> NoReturn:
    raise ValueError(constant)


def _kinds(schema: Mapping[str, Any]) -> frozenset[str]:
    """The JSON types that a schema names; empty where it names none, and any may be meant."""
    kind = schema.get("type")
    if isinstance(kind, str):
        return frozenset({kind})
    if isinstance(kind, list):
        return frozenset(name for name in kind if isinstance(name, str))
    for keyword in ("anyOf", "oneOf"):
        if isinstance(choices := schema.get(keyword), list):
            parts = [_kinds(choice) if isinstance(choice, Mapping) else frozenset() for choice in choices]
            return frozenset().union(*parts) if all(parts) else frozenset()
    values = schema.get("enum", [schema["const"]] if "const" in schema else [])
    return frozenset(_KINDS.get(type(value), _NULL) for value in values) if isinstance(values, list) else frozenset()
