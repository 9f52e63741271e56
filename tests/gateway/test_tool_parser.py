"""Tool calls in text, cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.grammar import grammar_fault
from headway.gateway.tools.syntax import BARE, TAGGED, ToolSyntax, syntax_of
from headway.gateway.tools.tool import Tool, Toolbox
from tests.gateway.call_pieces import take_piece

TOOLS = tuple(Tool(name=name, parameters={"type": "object"}, document={}) for name in ("f", "g"))
NESTED = '{"a": "}{\\"", "b": [1, {"é": {}}]}'
CALL = f'<tool_call>\n{{"name": "f", "arguments": {NESTED}}}\n</tool_call>'

Read = tuple[str, list[tuple[str, str]]]


def read(syntax: ToolSyntax, pieces: list[str], *, is_parallel: bool = True) -> Read:
    """The words, and name and arguments of each call."""
    parser = syntax.parser(Toolbox(tools=TOOLS, is_parallel=is_parallel))
    words, calls = "", list[tuple[str, str]]()
    for piece in [*(piece for text in pieces for piece in parser.push(text)), *parser.flush()]:
        if isinstance(piece, str):
            words += piece
        else:
            take_piece(calls, piece)
    return words, calls


CASES: list[tuple[ToolSyntax, str, Read | None]] = [
    (TAGGED, CALL, ("", [("f", NESTED)])),
    (TAGGED, f"Look: \n{CALL}\n{CALL}\n", ("Look:", [("f", NESTED), ("f", NESTED)])),
    (TAGGED, f"{CALL} Done.", ("Done.", [("f", NESTED)])),
    (TAGGED, '<tool_call>{"arguments": {"x": 1}, "name": "g"}</tool_call>', ("", [("g", '{"x": 1}')])),
    (TAGGED, '<tool_call>{"name": "g"}</tool_call>', ("", [("g", "{}")])),
    (TAGGED, '<tool_call>{"name": "g", "arguments": "{\\"x\\": 1}"}</tool_call>', ("", [("g", '{"x": 1}')])),
    (TAGGED, '<tool_call>{"name": "f", "arguments": {"x": "tr', ("", [("f", '{"x": "tr')])),
    (TAGGED, 'x <tool_call>{"name": "f", "argu', ('x <tool_call>{"name": "f", "argu', [])),
    (TAGGED, '<tool_call>{"name": "h", "arguments": {}}</tool_call>', None),
    (TAGGED, "a <tool_call> b </tool_call> c ", None),
    (TAGGED, "<tool_call>[1]</tool_call>", None),
    (TAGGED, '<tool_call>{"name": "f", oops}</tool_call>', None),
    (TAGGED, "1 < 2, <tool", None),
    (BARE, f'{{"name": "f", "parameters": {NESTED}}}', ("", [("f", NESTED)])),
    (BARE, ' {"type": "function", "name": "f", "parameters": {}}\n', ("", [("f", "{}")])),
    (BARE, '{"name": "f", "parameters": {}}; {"name": "g", "parameters": {}}', ("", [("f", "{}"), ("g", "{}")])),
    (BARE, '{"answer": {"name": "f"}} and more', None),
    (BARE, '  Words {"name": "f", "parameters": {}} ', None),
    (BARE, "  ", None),
]


@pytest.mark.parametrize(("syntax", "text", "expected"), CASES)
def test_calls_are_read_and_everything_else_is_words(syntax: ToolSyntax, text: str, expected: Read | None) -> None:
    assert read(syntax, [text]) == (expected or (text, []))


@given(case=st.sampled_from(CASES), data=st.data())
def test_it_does_not_matter_where_the_text_is_cut(
    case: tuple[ToolSyntax, str, Read | None], data: st.DataObject
) -> None:
    syntax, text, _ = case
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert read(syntax, pieces) == read(syntax, [text]) == read(syntax, list(text))


def test_of_calls_that_may_not_be_parallel_the_first_counts() -> None:
    assert read(TAGGED, [f"x{CALL}{CALL}y"], is_parallel=False) == ("x", [("f", NESTED)])


def test_arguments_go_out_as_they_come() -> None:
    parser = TAGGED.parser(Toolbox(tools=TOOLS))
    assert parser.push('<tool_call>{"name": "f", "arguments": ') == []
    sizes = [len(parser.push(char)) for char in NESTED]
    assert sizes == [2, *[1] * (len(NESTED) - 1)]


@pytest.mark.parametrize("syntax", [TAGGED, BARE])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_the_guide_of_a_required_call_compiles(syntax: ToolSyntax, is_parallel: bool) -> None:
    referring = Tool(
        name='odd "name"',
        parameters={"type": "object", "properties": {"x": {"$ref": "#/$defs/y"}}, "$defs": {"y": {"type": "null"}}},
        document={},
    )
    tools = (*TOOLS, referring)
    assert grammar_fault(syntax.guide(Toolbox(tools=tools, required=tools, is_parallel=is_parallel))) == ""


@pytest.mark.parametrize(
    ("template", "syntax"),
    [
        ('{% if tools %}<tool_call>\\n{\\"name\\": <name>, \\"arguments\\": <args>}\\n</tool_call>', TAGGED),
        ('{% if tools %}{{ \'<tool_call>{"name": ..., "arguments": ...}\' }}', TAGGED),
        ('{% if tools %}{"name": function name, "parameters": dictionary of argument name and its value}', BARE),
        ("{% if tools %}<tool_call><function=name><parameter=x>", None),
        ("{% if tools %}[AVAILABLE_TOOLS]", None),
        ("{{ messages }}", None),
    ],
)
def test_the_template_tells_the_syntax(template: str, syntax: ToolSyntax | None) -> None:
    assert syntax_of(template) is syntax
