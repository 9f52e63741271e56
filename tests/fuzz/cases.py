"""Cases: valid documents with something wrong in them, in structure and in values; and messages of any content."""

import copy
import json
import math
import os
from collections.abc import Callable, Iterator
from contextlib import suppress
from typing import Any, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import Message
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st

from headway.core.errors import HeadwayError

M = TypeVar("M", bound=Message)

NUM_CASES = int(os.environ.get("HEADWAY_FUZZ_CASES", "25"))
"""Of each target; `make fuzz CASES=N` sets it."""

fuzzing = settings(
    derandomize=NUM_CASES <= 1000,
    deadline=None,
    max_examples=NUM_CASES,
    database=None,
    suppress_health_check=list(HealthCheck),
)

_INTS = [0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400]
_FLOATS = [0.0, -0.0, 1e-50, 5e-324, 1e308, -1e308, 1.5, math.nan, math.inf, -math.inf]
_TEXTS = [
    "",
    "\0",
    "a",
    "é",
    "\U0001d54a",
    "\ufffe",
    "1" * 400,
    "a" * 5000,
    "../../etc/passwd",
    "{{",
    "{%",
    "$ref",
    "0",
    "-",
    "null",
]


def _deep(depth: int) -> Any:
    document: Any = 0
    for _ in range(depth):
        document = [document]
    return document


SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.sampled_from(_INTS),
    st.sampled_from(_FLOATS),
    st.sampled_from(_TEXTS),
    st.integers(-10, 10_000),
    st.text(max_size=8),
)
VALUES = st.recursive(
    SCALARS,
    lambda inner: st.one_of(st.lists(inner, max_size=3), st.dictionaries(st.text(max_size=6), inner, max_size=3)),
    max_leaves=6,
) | st.sampled_from([50, 400]).map(_deep)


def _places(node: Any) -> Iterator[tuple[Any, Any]]:
    """Yields each container within a document, with each of its keys."""
    keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
    for key in keys:
        yield node, key
        yield from _places(node[key])


@st.composite
def mutated(draw: Callable[..., Any], document: Any) -> Any:
    """A document in which one to three places were replaced, dropped, doubled or exchanged."""
    document = copy.deepcopy(document)
    for _ in range(draw(st.integers(1, 3))):
        places = list(_places(document))
        if not places:
            break
        parent, key = places[draw(st.integers(0, len(places) - 1))]
        match draw(st.sampled_from(["replace", "replace", "drop", "double", "exchange", "add"])):
            case "replace":
                parent[key] = draw(VALUES)
            case "drop":
                del parent[key]
            case "double":
                parent[key] = [parent[key], copy.deepcopy(parent[key])]
            case "exchange":
                other, other_key = places[draw(st.integers(0, len(places) - 1))]
                parent[key] = copy.deepcopy(other[other_key])
            case "add" if isinstance(parent, dict):
                parent[draw(st.sampled_from(_TEXTS))] = draw(VALUES)
    return document


def text_of(document: Any) -> str:
    """JSON with what Python lets pass: NaN, and numbers of any length."""
    return json.dumps(document, default=str)


@st.composite
def garbled(draw: Callable[..., Any], content: bytes) -> bytes:
    """Bytes of which some were changed, cut out or repeated."""
    found = bytearray(content)
    for _ in range(draw(st.integers(1, 4))):
        start = draw(st.integers(0, max(0, len(found) - 1)))
        end = min(len(found), start + draw(st.integers(0, 16)))
        match draw(st.sampled_from(["change", "cut", "repeat", "end"])):
            case "change":
                found[start:end] = draw(st.binary(max_size=16))
            case "cut":
                del found[start:end]
            case "repeat":
                found[start:start] = found[start:end]
            case "end":
                del found[start:]
    return bytes(found)


@st.composite
def messages(draw: Callable[..., Any], kind: type[M], *, depth: int = 3) -> M:
    """A message with any of its fields set to anything that its type takes."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if draw(st.booleans()):
            _fill(draw, message, field, depth)
    return message


def _fill(draw: Callable[..., Any], message: Message, field: FieldDescriptor, depth: int) -> None:
    if field.message_type is not None:
        if depth == 0 or field.message_type.GetOptions().map_entry:
            return
        inner = messages(field.message_type._concrete_class, depth=depth - 1)
        if field.is_repeated:
            getattr(message, field.name).extend(draw(st.lists(inner, max_size=2)))
        else:
            getattr(message, field.name).CopyFrom(draw(inner))
        return
    value = _SCALARS[field.cpp_type](field)
    if field.is_repeated:
        getattr(message, field.name).extend(draw(st.lists(value, max_size=3)))
    else:
        setattr(message, field.name, draw(value))


def _whole(bits: int, *, is_signed: bool) -> Callable[[FieldDescriptor], st.SearchStrategy[Any]]:
    least, most = (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1) if is_signed else (0, 2**bits - 1)
    edges = st.sampled_from([each for each in (*_INTS, least, most) if least <= each <= most])
    return lambda _: edges | st.integers(max(least, -5), 300)


def _text(field: FieldDescriptor) -> st.SearchStrategy[Any]:
    if field.type == FieldDescriptor.TYPE_BYTES:
        return st.binary(max_size=40)
    return st.sampled_from(_TEXTS) | st.text(st.characters(codec="utf-8"), max_size=8)


_SCALARS: dict[int, Callable[[FieldDescriptor], st.SearchStrategy[Any]]] = {
    FieldDescriptor.CPPTYPE_INT32: _whole(32, is_signed=True),
    FieldDescriptor.CPPTYPE_INT64: _whole(64, is_signed=True),
    FieldDescriptor.CPPTYPE_UINT32: _whole(32, is_signed=False),
    FieldDescriptor.CPPTYPE_UINT64: _whole(64, is_signed=False),
    FieldDescriptor.CPPTYPE_DOUBLE: lambda _: st.sampled_from(_FLOATS),
    FieldDescriptor.CPPTYPE_FLOAT: lambda _: st.sampled_from([0.0, 1e-38, 1.5, math.nan, math.inf, -math.inf]),
    FieldDescriptor.CPPTYPE_BOOL: lambda _: st.booleans(),
    FieldDescriptor.CPPTYPE_ENUM: lambda field: st.sampled_from([each.number for each in field.enum_type.values]),
    FieldDescriptor.CPPTYPE_STRING: _text,
}


def answered(call: Callable[[], object]) -> None:
    """Lets a call pass that returns, or refuses with a fault that says what to do; any other error is a bug."""
    with suppress(HeadwayError):
        call()
