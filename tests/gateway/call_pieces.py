"""What parsers of answers make of them: tool calls that come in pieces, and all that comes."""

from collections.abc import Sequence
from typing import TypeAlias

from headway.gateway.tools.call import CallDelta
from headway.gateway.tools.parser import AnswerParser
from headway.gateway.tools.reasoning import Reasoning

Read: TypeAlias = tuple[str, str, list[tuple[str, str]]]


def take_piece(calls: list[tuple[str, str]], piece: CallDelta) -> None:
    """Adds a piece to the name and arguments of its call."""
    if piece.index == len(calls):
        calls.append((piece.name, piece.arguments))
    else:
        assert not piece.name, "a name comes once"
        calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.arguments)


def read_all(parser: AnswerParser, texts: Sequence[str]) -> Read:
    """The reasoning, the words, and name and arguments of each call."""
    reasoning, words, calls = "", "", list[tuple[str, str]]()
    for piece in [*(piece for text in texts for piece in parser.push(text)), *parser.flush()]:
        if isinstance(piece, Reasoning):
            reasoning += piece.text
        elif isinstance(piece, str):
            words += piece
        else:
            take_piece(calls, piece)
    assert parser.num_calls == len(calls)
    return reasoning, words, calls
