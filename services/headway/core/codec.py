"""Frozen dataclasses to plain documents (JSON, YAML, protobuf's JSON form) and back, by their type hints.

Documents are what Redis keeps and what files hold; a document that does not fit its type raises
`InvalidArgumentError` naming the path of the field.
"""

import types
import typing
from collections.abc import Mapping, Sequence
from dataclasses import Field, fields, is_dataclass
from enum import Enum
from functools import cache
from typing import Any, TypeVar, Union, get_args, get_origin

from headway.core.errors import InvalidArgumentError

T = TypeVar("T")

ADDED = {"headway.added": True}
"""Metadata of a field that came after its type. Where it has its default it is left out: a version that does not know
the field reads what does without."""


def to_document(value: Any) -> Any:
    """Dataclasses become dicts, tuples lists, enums their values; None fields are left out."""
    if is_dataclass(value) and not isinstance(value, type):
        pairs = ((field, getattr(value, field.name)) for field in fields(value))
        return {field.name: to_document(item) for field, item in pairs if _is_told(field, item)}
    if isinstance(value, Enum):
        return value.value
    if isinstance(value, tuple | list):
        return [to_document(item) for item in value]
    if isinstance(value, Mapping):
        return {key: to_document(item) for key, item in value.items()}
    return value


def _is_told(field: "Field[Any]", item: Any) -> bool:
    return item is not None and not (ADDED.items() <= field.metadata.items() and item == field.default)


def from_document(kind: type[T], document: Any, *, path: str = "", is_stored: bool = False) -> T:
    """Builds a `kind` from a document; missing fields take their defaults, unknown ones are an error.

    Args:
        is_stored: a process wrote it, perhaps one of a later version: during an upgrade both are there, and after it
            the earlier one may come back. What this one does not know is left out.
    """
    return typing.cast("T", _Reader(is_stored=is_stored).convert(kind, document, path or kind.__name__))


@cache
def _hints(kind: type) -> dict[str, Any]:
    return typing.get_type_hints(kind)


class _Reader:
    def __init__(self, *, is_stored: bool) -> None:
        self._is_stored = is_stored

    def convert(self, kind: Any, document: Any, path: str) -> Any:
        if kind is Any:  # a document of somebody else's
            return document
        origin = get_origin(kind)
        if origin in (Union, types.UnionType):
            inner = next(arg for arg in get_args(kind) if arg is not type(None))
            return None if document is None else self.convert(inner, document, path)
        if origin is tuple:
            return self._tuple(get_args(kind), _expect(document, (list, tuple), path), path)
        if origin is dict:
            _expect(document, Mapping, path)
            inner = get_args(kind)[1]
            return {str(key): self.convert(inner, item, f"{path}.{key}") for key, item in document.items()}
        if is_dataclass(kind):
            return self._dataclass(typing.cast("type", kind), document, path)
        return _convert_scalar(kind, document, path)

    def _tuple(self, kinds: tuple[Any, ...], document: Sequence[Any], path: str) -> tuple[Any, ...]:
        """Of any length and one kind, or of one kind for each entry."""
        if kinds[-1] is Ellipsis:
            kinds = kinds[:1] * len(document)
        if len(kinds) != len(document):
            raise InvalidArgumentError(f"{path} should have {len(kinds)} entries, not {len(document)}.", field=path)
        pairs = zip(kinds, document, strict=True)
        return tuple([self.convert(kind, item, f"{path}[{i}]") for i, (kind, item) in enumerate(pairs)])

    def _dataclass(self, kind: type, document: Any, path: str) -> Any:
        _expect(document, Mapping, path)
        hints = _hints(kind)
        if (unknown := set(document) - set(hints)) and not self._is_stored:
            raise InvalidArgumentError(
                f"{path} has an unknown field '{min(unknown)}'.",
                hint=f"Its fields are {', '.join(hints)}.",
                field=f"{path}.{min(unknown)}",
            )
        arguments = {
            name: self.convert(hints[name], item, f"{path}.{name}")
            for name, item in document.items()
            if item is not None and name in hints
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
    name = getattr(kind, "__name__", str(kind))
    if kind is int and isinstance(document, float) and not document.is_integer():
        raise InvalidArgumentError(f"{path} should be {name}, not {document!r}.", field=path)
    try:
        return kind(document)  # int and float also from protobuf's strings; enums by value
    except (TypeError, ValueError, OverflowError) as error:
        raise InvalidArgumentError(f"{path} should be {name}, not {document!r}.", field=path) from error


def _expect(document: Any, kind: Any, path: str) -> Any:
    if not isinstance(document, kind):
        names = getattr(kind, "__name__", "list")
        raise InvalidArgumentError(f"{path} should be {names}, not {document!r}.", field=path)
    return document
