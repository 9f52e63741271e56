"""Control-plane messages: a core dataclass and its message have the same field names, so one pair of functions
converts them all. The token path has hand-written ones (`token`), which are ten times faster."""

import math
from collections.abc import Collection
from typing import Any, TypeVar

from google.protobuf.json_format import MessageToDict, ParseDict
from google.protobuf.message import Message

from headway.core.codec import from_document, to_document

M = TypeVar("M", bound=Message)
T = TypeVar("T")


def to_pb(value: object, message_type: type[M], *, without: Collection[str] = ()) -> M:
    """A `message_type` with the fields of a core dataclass, but for those `without` which it travels."""
    document = {name: _named(item) for name, item in to_document(value).items() if name not in without}
    return ParseDict(document, message_type())


def from_pb(message: Message, kind: type[T]) -> T:
    """A core `kind` with the fields of a message; InvalidArgumentError where a required field is missing."""
    document = MessageToDict(message, preserving_proto_field_name=True, always_print_fields_with_no_presence=True)
    return from_document(kind, document)


def _named(document: Any) -> Any:
    """The document with "Infinity", "-Infinity" and "NaN" for numbers that JSON has none for, as protobuf has it."""
    if isinstance(document, dict):
        return {key: _named(item) for key, item in document.items()}
    if isinstance(document, list):
        return [_named(item) for item in document]
    if isinstance(document, float) and not math.isfinite(document):
        return "NaN" if math.isnan(document) else "Infinity" if document > 0 else "-Infinity"
    return document
