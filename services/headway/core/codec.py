"""Frozen dataclasses to plain documents (JSON, YAML, protobuf's JSON form) and back, by their type hints.

Documents are what Redis keeps and what files hold; a document that does not fit its type raises
`InvalidArgumentError` naming the path of the field.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

from headway.core.errors import InvalidArgumentError

T = TypeVar("T")


def to_document(value: Any) -> Any:
    """Dataclasses become dicts, tuples lists, enums their values; None fields are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((field.name, getattr(value, field.name)) for field in fields(value))
        return {name: to_document(item) for name, item in pairs if item is not None}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_document(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_document(item) for key, item in value.items()}
    return value


def from_document(kind: type[T], document: Any, *, path: str = "") -> T:
    """Builds a `kind` from a document; missing fields take their defaults, unknown ones are an error."""
    return typing.cast("T", _convert(kind, document, path or kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


def _convert(kind: Any, document: Any, path: str) -> Any:
    if kind is Any:  # a document of somebody else's
        return document
    origin = get_origin(kind)
    if origin in (Union, types.UnionType):
        inner = next(arg for arg in get_args(kind) if arg is not type(None))
        return None if document is None else _convert(inner, document, path)
    if origin is tuple:
        return _convert_tuple(get_args(kind), _expect(document, (list, tuple), path), path)
    if origin is dict:
        _expect(document, Mapping, path)
        inner = get_args(kind)[1]
        return {str(key): _convert(inner, item, f"{path}.{key}") for key, item in document.items()}
    if is_dataclass(kind):
        return _convert_dataclass(typing.cast("type", kind), document, path)
    return _convert_scalar(kind, document, path)


def _convert_tuple(kinds: tuple[Any, ...], document: Sequence[Any], path: str) -> tuple[Any, ...]:
    """Of any length and one kind, or of one kind for each entry."""
    if kinds[-1] is Ellipsis:
        kinds = kinds[:1] * len(document)
    if len(kinds) != len(document):
        raise InvalidArgumentError(f"{path} should have {len(kinds)} entries, not {len(document)}.", field=path)
    pairs = zip(kinds, document, strict=True)
    return tuple([_convert(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(pairs)])


def _convert_dataclass(kind: type, document: Any, path: str) -> Any:
    _expect(document, Mapping, path)
    hints = _hints(kind)
    if unknown := set(document) - set(hints):
        raise InvalidArgumentError(
            f"{path} has an unknown field '{min(unknown)}'.",
            hint=f"Its fields are {', '.join(hints)}.",
            field=f"{path}.{min(unknown)}",
        )
    arguments = {
        name: _convert(hints[name], item, f"{path}.{name}") for name, item in document.items() if item is not None
    }
    try:
        return kind(**arguments)
    except TypeError as error:
        raise InvalidArgumentError(f"{path}: {error}.", field=path) from error


def _convert_scalar(kind: Any, document: Any, path: str) -> Any:
    if kind is bool:
        return _expect(document, bool, path)
    if kind is str:
        return _expect(document, str, path)
    try:
        return kind(document)  # int and float also from protobuf's strings; enums by value
    except (TypeError, ValueError, OverflowError) as error:
        name = getattr(kind, "__name__", str(kind))
        raise InvalidArgumentError(f"{path} should be {name}, not {document!r}.", field=path) from error


def _expect(document: Any, kind: Any, path: str) -> Any:
    if not isinstance(document, kind):
        names = getattr(kind, "__name__", "list")
        raise InvalidArgumentError(f"{path} should be {names}, not {document!r}.", field=path)
    return document
