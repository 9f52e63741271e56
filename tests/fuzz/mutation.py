"""Mutations: something in a document, a message or bytes becomes wrong, in structure or in value. All chance is the
caller's.
"""

import copy
import json
import math
from collections.abc import Callable, Iterator
from random import Random
from typing import Any, TypeAlias, TypeVar

from google.protobuf.descriptor import FieldDescriptor
from google.protobuf.message import DecodeError, Message

M = TypeVar("M", bound=Message)
Mutation: TypeAlias = Callable[[bytes, Random], bytes]

_INTS = (0, 1, -1, 2**31 - 1, 2**31, -(2**31) - 1, 2**53 + 1, 2**63 - 1, 2**63, -(2**63) - 1, 2**64, 10**400)
_FLOATS = (0.0, -0.0, 1e-50, 5e-324, 1e-38, 1e308, -1e308, 1.5, math.nan, math.inf, -math.inf)
_TEXTS = (
    *("", "\0", "a", "é", "\U0001d54a", "\ufffe", "1" * 400, "a" * 5000, "../../etc/passwd", "/", "{{", "{%"),
    *("$ref", "#", "0", "-", "null", "nan", "inf", "1e999", "()", "a{1000}", "[", "tiny", "127.0.0.1:1"),
)
_LEAVES: tuple[Any, ...] = (None, True, False, *_INTS, *_FLOATS, *_TEXTS)
_DEPTHS = (50, 400)
_MAX_CUT_BYTES = 16
_MAX_ENTRIES = 3
_DEPTH = 3  # of messages within messages that are drawn anew


def mutate_json(content: bytes, random: Random) -> bytes:
    """A JSON document with one to three places replaced, dropped, doubled, exchanged or added. Numbers go over JSON:
    NaN, infinity, and any number of digits. Bytes that are no JSON are garbled."""
    try:
        document = json.loads(content)
        for _ in range(random.randint(1, 3)):
            document = _mutated(document, random)
        return json.dumps(document).encode(errors="surrogatepass")
    except (ValueError, RecursionError):
        return garble(content, random)


def mutation_of(kind: type[M]) -> Mutation:
    """Messages of this kind, of which one to three fields, at any depth, were set anew, cleared or doubled."""

    def mutate(content: bytes, random: Random) -> bytes:
        try:
            message = kind.FromString(content)
        except DecodeError:
            return garble(content, random)
        return mutate_message(message, random).SerializeToString()

    return mutate


def mutate_message(message: M, random: Random) -> M:
    changed = copy.deepcopy(message)
    for _ in range(random.randint(1, 3)):
        places = [(each, field) for each in _messages(changed) for field in each.DESCRIPTOR.fields]
        if places:
            _set(*random.choice(places), random)
    return changed


def random_message(kind: type[M], random: Random, *, depth: int = _DEPTH) -> M:
    """A message of which half of the fields are set, to anything that their types take."""
    message = kind()
    for field in kind.DESCRIPTOR.fields:
        if random.random() < 0.5:
            _fill(message, field, random, depth)
    return message


def garble(content: bytes, random: Random) -> bytes:
    """Bytes of which some were changed, cut out or repeated, or that end early."""
    found = bytearray(content)
    for _ in range(random.randint(1, 4)):
        start = random.randrange(len(found) + 1)
        end = min(len(found), start + random.randint(0, _MAX_CUT_BYTES))
        match random.choice(("change", "change", "cut", "repeat", "end")):
            case "change":
                found[start:end] = random.randbytes(random.randint(0, _MAX_CUT_BYTES))
            case "cut":
                del found[start:end]
            case "repeat":
                found[start:start] = found[start:end]
            case "end":
                del found[start:]
    return bytes(found)


def _mutated(document: Any, random: Random) -> Any:
    places = list(_places(document))
    if not places:
        return _value(random)
    parent, key = random.choice(places)
    match random.choice(("replace", "replace", "replace", "drop", "double", "exchange", "add")):
        case "replace":
            parent[key] = _near(parent[key], random)
        case "drop":
            del parent[key]
        case "double":
            parent[key] = [parent[key], copy.deepcopy(parent[key])]
        case "exchange":
            other, other_key = random.choice(places)
            parent[key] = copy.deepcopy(other[other_key])
        case "add" if isinstance(parent, dict):
            parent[random.choice(_TEXTS)] = _value(random)
    return document


def _places(document: Any) -> Iterator[tuple[Any, Any]]:
    """Each container within a document, with each of its keys."""
    to_visit = [document]
    while to_visit:
        node = to_visit.pop()
        keys = list(node) if isinstance(node, dict) else range(len(node)) if isinstance(node, list) else ()
        for key in keys:
            yield node, key
            to_visit.append(node[key])


def _near(value: Any, random: Random) -> Any:
    """Anything, or something like the value: a number's neighbour, a text that goes on."""
    if random.random() < 0.5:
        if isinstance(value, bool):
            return not value
        if isinstance(value, int):
            return value + random.choice((-1, 1)) if random.random() < 0.5 else random.choice(_INTS)
        if isinstance(value, float):
            return random.choice(_FLOATS)
        if isinstance(value, str):
            at = random.randint(0, len(value))
            return value[:at] + random.choice(_TEXTS) + value[at:]
    return _value(random)


def _value(random: Random, *, depth: int = 2) -> Any:
    match random.choice(("leaf", "leaf", "leaf", "number", "list", "object", "deep")) if depth else "leaf":
        case "number":
            return random.randint(-10, 10_000)
        case "list":
            return [_value(random, depth=depth - 1) for _ in range(random.randint(0, _MAX_ENTRIES))]
        case "object":
            num = random.randint(0, _MAX_ENTRIES)
            return {random.choice(_TEXTS): _value(random, depth=depth - 1) for _ in range(num)}
        case "deep":
            return _deep(random.choice(_DEPTHS))
        case _:
            return random.choice(_LEAVES)


def _deep(depth: int) -> Any:
    document: Any = 0
    for _ in range(depth):
        document = [document]
    return document


def _messages(message: Message) -> Iterator[Message]:
    """The message, and all that are set within it."""
    yield message
    for field, value in message.ListFields():
        if field.message_type is not None and not _is_map(field):
            for inner in value if field.is_repeated else (value,):
                yield from _messages(inner)


def _set(message: Message, field: FieldDescriptor, random: Random) -> None:
    """Clears a field, or sets it anew; in one that is repeated, more may be added to what is there."""
    match random.choice(("clear", "fill", "fill", "fill", "double")):
        case "clear":
            message.ClearField(field.name)
        case "double" if field.is_repeated and not _is_map(field):
            repeated = getattr(message, field.name)
            repeated.extend(list(repeated))
        case _:
            if not (field.is_repeated and random.random() < 0.5):
                message.ClearField(field.name)
            _fill(message, field, random, depth=1)


def _fill(message: Message, field: FieldDescriptor, random: Random, depth: int) -> None:
    num = random.randint(0, _MAX_ENTRIES) if field.is_repeated else 1
    if _is_map(field):
        key, value = (field.message_type.fields_by_name[name] for name in ("key", "value"))
        entries = getattr(message, field.name)
        for _ in range(num):
            if value.message_type is None:
                entries[_scalar(key, random)] = _scalar(value, random)
            else:
                entries[_scalar(key, random)].SetInParent()
    elif field.message_type is not None:
        for _ in range(num if depth else 0):
            inner = random_message(field.message_type._concrete_class, random, depth=depth - 1)
            if field.is_repeated:
                getattr(message, field.name).append(inner)
            else:
                getattr(message, field.name).CopyFrom(inner)
    elif field.is_repeated:
        getattr(message, field.name).extend(_scalar(field, random) for _ in range(num))
    else:
        setattr(message, field.name, _scalar(field, random))


def _is_map(field: FieldDescriptor) -> bool:
    return field.message_type is not None and field.message_type.GetOptions().map_entry


_BOUNDS = {
    FieldDescriptor.CPPTYPE_INT32: (-(2**31), 2**31 - 1),
    FieldDescriptor.CPPTYPE_INT64: (-(2**63), 2**63 - 1),
    FieldDescriptor.CPPTYPE_UINT32: (0, 2**32 - 1),
    FieldDescriptor.CPPTYPE_UINT64: (0, 2**64 - 1),
}


def _scalar(field: FieldDescriptor, random: Random) -> Any:
    if (bounds := _BOUNDS.get(field.cpp_type)) is not None:
        return _whole(*bounds, random)
    match field.cpp_type:
        case FieldDescriptor.CPPTYPE_DOUBLE | FieldDescriptor.CPPTYPE_FLOAT:
            return random.choice(_FLOATS)
        case FieldDescriptor.CPPTYPE_BOOL:
            return random.random() < 0.5
        case FieldDescriptor.CPPTYPE_ENUM:
            return random.choice([each.number for each in field.enum_type.values])
    if field.type == FieldDescriptor.TYPE_BYTES:
        return random.randbytes(random.choice((0, 1, 16, 40)))
    return random.choice(_TEXTS)


def _whole(least: int, most: int, random: Random) -> int:
    edges = [each for each in (*_INTS, least, most) if least <= each <= most]
    return random.choice(edges) if random.random() < 0.5 else random.randint(max(least, -5), 300)
