"""Tool calls in text, cut anywhere."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.grammar import grammar_fault
from headway.gateway.tools.syntax import (
    BARE,
    CODER,
    DEEPSEEK,
    DEEPSEEK_FENCED,
    MISTRAL,
    MISTRAL_LIST,
    PYTHONIC,
    TAGGED,
    ToolSyntax,
    syntax_of,
)
from headway.gateway.tools.tool import Tool, Toolbox
from tests.gateway.call_pieces import take_piece

SCHEMA = {
    "type": "object",
    "properties": {
        "s": {"type": "string"},
        "i": {"type": "integer"},
        "n": {"anyOf": [{"type": "string"}, {"type": "null"}]},
        "l": {"type": ["array", "string"]},
        "b": {"enum": [True, False]},
        "a": {},
    },
}
TOOLS = tuple(Tool(name=name, parameters=SCHEMA, document={}) for name in ("f", "g"))
NESTED = '{"a": "}{\\"", "b": [1, {"é": {}}]}'
CALL = f'<tool_call>\n{{"name": "f", "arguments": {NESTED}}}\n</tool_call>'

CALLS_BEGIN, CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001
BEGIN, SEP, END = "<｜tool▁call▁begin｜>", "<｜tool▁sep｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
DEEPSEEK_CALL = f"{BEGIN}f{SEP}{NESTED}{END}"
FENCED_CALL = f"{BEGIN}function{SEP}f\n```json\n{NESTED}\n```{END}"
CODER_CALL = "<tool_call>\n<function=f>\n<parameter=s>\na <b>\n\n</parameter>\n</function>\n</tool_call>"

Read = tuple[str, list[tuple[str, str]]]


def function(body: str) -> str:
    return f"<tool_call>\n<function=f>\n{body}</function>\n</tool_call>"


def parameter(key: str, value: str) -> str:
    return function(f"<parameter={key}>\n{value}\n</parameter>\n")


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
    (TAGGED, f"{CALL} Done </tool_call>.", ("Done </tool_call>.", [("f", NESTED)])),
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
    (BARE, ' {"x": 1}', None),
    (TAGGED, '<tool_call>{"arguments": {"x": "\\ud800"}, "name": "g"}</tool_call>', ("", [("g", '{"x": "\\ud800"}')])),
    (MISTRAL, f"[TOOL_CALLS]f[ARGS]{NESTED}", ("", [("f", NESTED)])),
    (
        MISTRAL,
        f"Look. [TOOL_CALLS]f[CALL_ID]a1[ARGS]{NESTED}[TOOL_CALLS]g {{}}",
        ("Look.", [("f", NESTED), ("g", "{}")]),
    ),
    (MISTRAL, '[TOOL_CALLS]f[ARGS]{"a": "tr', ("", [("f", '{"a": "tr')])),
    (MISTRAL, "[TOOL_CALLS]h[ARGS]{}", None),
    (MISTRAL, "a [TOOL_CALLS] b [TOOL_CA", None),
    (MISTRAL, "[TOOL_CALLS]f" + "x" * 140, None),
    (MISTRAL, "[TOOL_CALLS]f[ARGS]", None),
    (MISTRAL_LIST, f'[TOOL_CALLS] [{{"name": "f", "arguments": {NESTED}}}]\n', ("", [("f", NESTED)])),
    (
        MISTRAL_LIST,
        '[TOOL_CALLS][{"name": "f", "arguments": {}, "id": "x"} , {"name": "g", "arguments": {}}] So.',
        ("So.", [("f", "{}"), ("g", "{}")]),
    ),
    (MISTRAL_LIST, '[TOOL_CALLS] {"name": "f", "arguments": {}}', ("", [("f", "{}")])),
    (MISTRAL_LIST, '[TOOL_CALLS] [{"name": "f", "arguments": {}}, {"name": "h"}]', (', {"name": "h"}]', [("f", "{}")])),
    (MISTRAL_LIST, '[TOOL_CALLS] [{"name": "h"}]', None),
    (MISTRAL_LIST, "[TOOL_CALLS] [ 1 ]", None),
    (DEEPSEEK, f"Hm.\n{CALLS_BEGIN}{DEEPSEEK_CALL}\n{DEEPSEEK_CALL}{CALLS_END}", ("Hm.", [("f", NESTED)] * 2)),
    (DEEPSEEK, f"{CALLS_BEGIN}{DEEPSEEK_CALL}{CALLS_END} So.", ("So.", [("f", NESTED)])),
    (DEEPSEEK, f"{CALLS_BEGIN}{BEGIN}h{SEP}{{}}{END}{CALLS_END}", None),
    (DEEPSEEK, f"a {CALLS_BEGIN} b {BEGIN}", None),
    (DEEPSEEK_FENCED, f"Hm.\n{CALLS_BEGIN}{FENCED_CALL}\n{FENCED_CALL}{CALLS_END}", ("Hm.", [("f", NESTED)] * 2)),
    (DEEPSEEK_FENCED, f"{CALLS_BEGIN}{BEGIN}function{SEP}f\n```json\n", None),
    (DEEPSEEK_FENCED, f"{BEGIN}function{SEP}f\n```python\n{{}}", None),
    (CODER, CODER_CALL, ("", [("f", '{"s": "a <b>\\n"}')])),
    (CODER, f"Look.\n{CODER_CALL}\n{CODER_CALL}\nSo.", ("Look.So.", [("f", '{"s": "a <b>\\n"}')] * 2)),
    (CODER, CODER_CALL.removeprefix("<tool_call>\n"), ("", [("f", '{"s": "a <b>\\n"}')])),
    (CODER, function(""), ("", [("f", "{}")])),
    (CODER, parameter("i", "3"), ("", [("f", '{"i": 3}')])),
    (CODER, parameter("i", "many"), ("", [("f", '{"i": "many"}')])),
    (CODER, parameter("s", "3"), ("", [("f", '{"s": "3"}')])),
    (CODER, parameter("n", "null"), ("", [("f", '{"n": null}')])),
    (CODER, parameter("n", "3"), ("", [("f", '{"n": "3"}')])),
    (CODER, parameter("l", "['a', {'b': None}]"), ("", [("f", '{"l": ["a", {"b": null}]}')])),
    (CODER, parameter("b", "True"), ("", [("f", '{"b": true}')])),
    (CODER, parameter("a", '{"x": [1.5]}'), ("", [("f", '{"a": {"x": [1.5]}}')])),
    (CODER, parameter("a", "NaN"), ("", [("f", '{"a": "NaN"}')])),
    (CODER, parameter("unknown", "3"), ("", [("f", '{"unknown": "3"}')])),
    (
        CODER,
        function("<parameter=i>\n1\n<parameter=s>\nx\n"),
        ("", [("f", '{"i": 1, "s": "x"}')]),
    ),
    (CODER, "<tool_call><function=f> hm <parameter=i>1</parameter></tool_call>", ("hm", [("f", '{"i": 1}')])),
    (CODER, "<tool_call>\n<function=f>\n<parameter=s>\nhalf a te", ("", [("f", '{"s": "half a te')])),
    (CODER, "<tool_call>\n<function=h>\n</function>\n</tool_call>", None),
    (CODER, "a <tool_call> b <function= c <funct", None),
    (PYTHONIC, '[f(x=1, s="a)\\"b", o=None), g()]', ("", [("f", '{"x": 1, "s": "a)\\"b", "o": null}'), ("g", "{}")])),
    (PYTHONIC, " [f(l=[-1, (true, {'k': 2.5})])]\n", ("", [("f", '{"l": [-1, [true, {"k": 2.5}]]}')])),
    (PYTHONIC, "[f(s='\\ud800')]", ("", [("f", '{"s": "\\ud800"}')])),
    (PYTHONIC, "[f(x=1), oops]", (", oops]", [("f", '{"x": 1}')])),
    (PYTHONIC, "[f(1)]", None),
    (PYTHONIC, "[f(x=g())]", None),
    (PYTHONIC, "[f(**{'x': 1})]", None),
    (PYTHONIC, "[f(x=", None),
    (PYTHONIC, "[1, 2] and more", None),
    (PYTHONIC, "So: [f(x=1)]", None),
]


@pytest.mark.parametrize(("syntax", "text", "expected"), CASES)
def test_calls_are_read_and_everything_else_is_words(syntax: ToolSyntax, text: str, expected: Read | None) -> None:
    assert read(syntax, [text]) == (expected or (text, []))


@settings(max_examples=80, deadline=None)
@given(case=st.sampled_from(CASES), data=st.data())
def test_it_does_not_matter_where_the_text_is_cut(
    case: tuple[ToolSyntax, str, Read | None], data: st.DataObject
) -> None:
    syntax, text, _ = case
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert read(syntax, pieces) == read(syntax, [text]) == read(syntax, list(text))


_FRAGMENTS = {
    TAGGED: ["<tool_call>", "</tool_call>", '{"name": "f", "arguments": ', '"a": 1', "[1]"],
    BARE: ['{"name": "f", "parameters": ', '"a": 1', ";", "[1]"],
    MISTRAL: ["[TOOL_CALLS]", "f", "[ARGS]", "[CALL_ID]", "[", "]", ",", '{"name": "g", "arguments": {}}', "{}"],
    DEEPSEEK: [CALLS_BEGIN, BEGIN, "function", "f", SEP, "```json", "```", "{}", END, CALLS_END],
    CODER: [
        "<tool_call>",
        "<function=",
        "f>",
        "<parameter=",
        "s>",
        "i>",
        "1",
        "</parameter>",
        "</function>",
        "</tool_call>",
    ],
    PYTHONIC: ["[", "f", "(", "x=", "1", "'", '"', ",", ")", "]", "\\"],
}


@settings(max_examples=80, deadline=None)
@given(syntax=st.sampled_from([*_FRAGMENTS]), data=st.data())
def test_nor_of_any_text_at_all_and_nothing_is_lost(syntax: ToolSyntax, data: st.DataObject) -> None:
    usual = st.sampled_from([*_FRAGMENTS[syntax], "}", "{", "<", " ", "\n", "é"])
    fragments, is_parallel = data.draw(st.lists(usual, max_size=16)), data.draw(st.booleans())
    text = "".join(fragments)
    words, calls = read(syntax, [text], is_parallel=is_parallel)
    assert read(syntax, list(text), is_parallel=is_parallel) == (words, calls)
    assert read(syntax, fragments, is_parallel=is_parallel) == (words, calls)
    assert calls or words == text
    assert is_parallel or len(calls) <= 1


@pytest.mark.parametrize(
    ("syntax", "call"), [(TAGGED, CALL), (MISTRAL, f"[TOOL_CALLS]f{NESTED}"), (DEEPSEEK, DEEPSEEK_CALL)]
)
def test_of_calls_that_may_not_be_parallel_the_first_counts(syntax: ToolSyntax, call: str) -> None:
    assert read(syntax, [f"x{call}{call}y"], is_parallel=False) == ("x", [("f", NESTED)])


@pytest.mark.parametrize("value", ["[" * 300 + "]" * 300, "-" * 5000 + "1", "1" * 5000, "'\0'", "1e999"])
def test_what_python_cannot_read_is_words(value: str) -> None:
    text = f"[f(x={value})]"
    assert read(PYTHONIC, [text]) == (text, [])


def test_so_it_is_in_a_list() -> None:
    assert read(PYTHONIC, ["[f(), g()]"], is_parallel=False) == ("", [("f", "{}")])


def test_a_long_text_among_the_arguments_goes_out_as_it_comes() -> None:
    parser = CODER.parser(Toolbox(tools=TOOLS))
    parser.push("<tool_call>\n<function=f>\n<parameter=s>\n")
    assert all(len(parser.push(line)) == 1 for line in ("one\n", "two\n", "three\n"))


def test_arguments_go_out_as_they_come() -> None:
    parser = TAGGED.parser(Toolbox(tools=TOOLS))
    assert parser.push('<tool_call>{"name": "f", "arguments": ') == []
    sizes = [len(parser.push(char)) for char in NESTED]
    assert sizes == [2, *[1] * (len(NESTED) - 1)]


@pytest.mark.parametrize("syntax", [TAGGED, BARE, MISTRAL, MISTRAL_LIST, DEEPSEEK, DEEPSEEK_FENCED, CODER, PYTHONIC])
@pytest.mark.parametrize("is_parallel", [True, False])
def test_the_guide_of_a_required_call_compiles(syntax: ToolSyntax, is_parallel: bool) -> None:
    referring = Tool(
        name='odd "NAME"',
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
        ("{% if tools %}<tool_call>\n<function=name>\n<parameter=x>", CODER),
        ("{% if tools %}[AVAILABLE_TOOLS]", None),
        ('{% if tools %}[AVAILABLE_TOOLS]{{ "[TOOL_CALLS] [" }}{"arguments": ', MISTRAL_LIST),
        ('{% if tools %}{{ "[TOOL_CALLS]" + name + "[ARGS]" + arguments }}', MISTRAL),
        (f"{{% if tools %}}{CALLS_BEGIN}{BEGIN}tool_call_name{SEP}tool_call_arguments{END}{CALLS_END}", DEEPSEEK),
        (f"{{% if tools %}}{CALLS_BEGIN}{BEGIN}function{SEP}NAME\n```json\n", DEEPSEEK_FENCED),
        ("{% if tools %}[func_name1(params_name1=params_value1, params_name2=params_value2...)]", PYTHONIC),
        ("{{ messages }}", None),
    ],
)
def test_the_template_tells_the_syntax(template: str, syntax: ToolSyntax | None) -> None:
    assert syntax_of(template) is syntax
