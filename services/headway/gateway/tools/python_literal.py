"""Values as Python writes them, read without running anything."""

import ast
import math
import warnings
from typing import Any

# Reading takes about a microsecond a character.
_MAX_CHARS = 1 << 18
_FAULTS = (SyntaxError, ValueError, RecursionError, MemoryError)
_NO_JSON = (math.inf,)  # a number that is too large
_WORDS = {"true": True, "false": False, "null": None, "none": None}


def read_literal(text: str) -> Any:
    """A number, text, list, dictionary, or one of the words for true, false and nothing, JSON's among them.

    Raises:
        ValueError: the text is something else.
    """
    return _value(_parse(text))


def read_keywords(call: str) -> dict[str, Any]:
    """The arguments of a call's text, `name(key=literal, ...)`; ValueError where they are not of that kind."""
    node = _parse(call)
    if not isinstance(node, ast.Call) or node.args:
        raise ValueError("no call with names for all arguments")
    return {_name(keyword): _value(keyword.value) for keyword in node.keywords}


def _parse(text: str) -> ast.expr:
    if len(text) > _MAX_CHARS:
        raise ValueError("too long")
    with warnings.catch_warnings():  # of escapes in texts that Python does not know
        warnings.simplefilter("ignore")
        try:
            return ast.parse(text.strip(), mode="eval").body
        except _FAULTS as error:
            raise ValueError("no expression") from error


def _name(keyword: ast.keyword) -> str:
    if keyword.arg is None:
        raise ValueError("arguments without a name")
    return keyword.arg


def _value(node: ast.expr | None) -> Any:
    match node:
        case ast.Constant(value=str() | int() | float() | None as value) if value not in _NO_JSON:
            return value
        case ast.Name(id=name) if name.lower() in _WORDS:
            return _WORDS[name.lower()]
        case ast.UnaryOp(op=ast.USub(), operand=ast.Constant(value=int() | float() as value)):
            return -value
        case ast.List(elts=items) | ast.Tuple(elts=items):
            return [_value(item) for item in items]
        case ast.Dict(keys=keys, values=values):
            return {_key(key): _value(value) for key, value in zip(keys, values, strict=True)}
    raise ValueError("no literal")


def _key(node: ast.expr | None) -> str:
    match node:
        case ast.Constant(value=str() as key):
            return key
    raise ValueError("no text as the key")
