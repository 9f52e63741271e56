"""Guides as grammars of the llguidance library: the gateway checks them, the worker follows them."""

import json
from collections.abc import Mapping
from typing import Any

from llguidance import LLMatcher, LLParserLimits
from llguidance.gbnf_to_lark import gbnf_to_lark

from headway.core.request import Guide, GuideKind

# Room to indent JSON in, but none to wander off into.
_WHITESPACE = r"\n[ \t]{0,20}|[ \t]{1,20}"
_ANY_OBJECT = '{"type": "object"}'
_GBNF_RULE = "::="

# Of one guide, in the library's own units, so that a guide that is too much is so on every machine. Compiling takes
# less than half a second with them, and a mask about a tenth; the library's own are 10 to 20 times as high.
LIMITS = LLParserLimits(
    initial_lexer_fuel=100_000, step_lexer_fuel=10_000, step_max_items=10_000, max_lexer_states=20_000
)


def grammar_of(guide: Guide) -> str:
    """Returns the grammar that the library compiles; ValueError where a text that should be JSON or GBNF is not."""
    match guide.kind:
        case GuideKind.JSON_SCHEMA:
            return _json_grammar(guide.text)
        case GuideKind.JSON_OBJECT:
            return _json_grammar(_ANY_OBJECT)
        case GuideKind.REGEX:
            return LLMatcher.grammar_from_regex(guide.text)
        case GuideKind.CHOICE:
            # One terminal: as a rule each choice would be one, and thousands of them take seconds.
            return LLMatcher.grammar_from_lark(
                f"start: CHOICE\nCHOICE: {' | '.join(map(lark_text, _choices(guide.text)))}"
            )
        case GuideKind.GRAMMAR:
            return LLMatcher.grammar_from_lark(_lark_of(guide.text))


def grammar_fault(guide: Guide) -> str:
    """Returns why a guide cannot be followed; empty if it can.

    Names of special tokens in a grammar are taken on trust: only the worker has the vocabulary.
    """
    try:
        grammar = grammar_of(guide)
    except ValueError as error:
        return str(error)
    return LLMatcher.validate_grammar(grammar, limits=LIMITS)


def lark_text(text: str) -> str:
    """A Lark term for just this text."""
    return json.dumps(text)


def lark_json(schema: Mapping[str, Any]) -> str:
    """A Lark term for the JSON documents of a schema."""
    return "%json " + json.dumps({"x-guidance": {"whitespace_pattern": _WHITESPACE}, **schema})


def _lark_of(grammar: str) -> str:
    """A grammar in Lark as it is, one in llama.cpp's GBNF as Lark."""
    if _GBNF_RULE not in grammar:
        return grammar
    try:
        return gbnf_to_lark(grammar)
    except Exception as error:  # the library raises nothing more precise
        raise ValueError(str(error)) from error


def _choices(text: str) -> list[str]:
    choices = json.loads(text)
    if not isinstance(choices, list) or not choices or not all(isinstance(choice, str) for choice in choices):
        raise ValueError("the choices are not a list of strings")
    return choices


def _json_grammar(schema: str) -> str:
    return LLMatcher.grammar_from_json_schema(schema, {"whitespace_pattern": _WHITESPACE})
