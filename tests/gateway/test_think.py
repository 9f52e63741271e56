"""Reasoning between tags, cut anywhere, and the templates that show it."""

from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.gateway.text.template import ChatTemplate
from headway.gateway.tools.parser import AnswerParser, WordParser
from headway.gateway.tools.syntax import TAGGED
from headway.gateway.tools.think import ThinkParser, ThinkTags, think_tags_of
from headway.gateway.tools.tool import Tool, Toolbox
from tests.gateway.call_pieces import Read, read_all

TAGS = ThinkTags("<think>", "</think>")
TOOLBOX = Toolbox(tools=(Tool(name="f", parameters={"type": "object"}, document={}),))
CALL = '<tool_call>\n{"name": "f", "arguments": {"x": 1}}\n</tool_call>'


def read(pieces: list[str], *, is_open: bool = False, has_tools: bool = True) -> Read:
    answer: AnswerParser = TAGGED.parser(TOOLBOX) if has_tools else WordParser()
    return read_all(ThinkParser(answer, tags=TAGS, is_open=is_open), pieces)


CASES: list[tuple[str, bool, Read]] = [
    ("<think>\nHm, 1 < 2.\n</think>\n\nYes.\n", False, ("Hm, 1 < 2.", "Yes.\n", [])),
    ("Hm,\n\n1 < 2.\n</think>\n\nYes.", True, ("Hm,\n\n1 < 2.", "Yes.", [])),
    (" <think>Hm.</think>Yes.", True, ("Hm.", "Yes.", [])),
    ("<think>\n\n</think>\n\nYes.", False, ("", "Yes.", [])),
    (f"<think>I call.</think>\n{CALL}", False, ("I call.", "", [("f", '{"x": 1}')])),
    (f"<think>{CALL}</think>So", False, (CALL, "So", [])),
    ("Yes. <think>No.</think>", False, ("", "Yes. <think>No.</think>", [])),
    ("  Yes", False, ("", "  Yes", [])),
    ("<think> cut sh </thi", False, ("cut sh </thi", "", [])),
    ("cut sh", True, ("cut sh", "", [])),
    ("<thi", False, ("", "<thi", [])),
    ("<thi", True, ("<thi", "", [])),
    ("<think>Hm.</think>  ", False, ("Hm.", "", [])),
    ("", True, ("", "", [])),
    ("", False, ("", "", [])),
]


@pytest.mark.parametrize(("text", "is_open", "expected"), CASES)
def test_reasoning_words_and_calls_are_told_apart(text: str, is_open: bool, expected: Read) -> None:
    assert read([text], is_open=is_open) == expected


@settings(max_examples=60, deadline=None)
@given(case=st.sampled_from(CASES), data=st.data())
def test_it_does_not_matter_where_the_text_is_cut(case: tuple[str, bool, Read], data: st.DataObject) -> None:
    text, is_open, _ = case
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=8).map(sorted))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert read(pieces, is_open=is_open) == read([text], is_open=is_open) == read(list(text), is_open=is_open)


@settings(max_examples=60, deadline=None)
@given(
    fragments=st.lists(st.sampled_from(["<think>", "</think>", "<", " ", "\n", "é", "Hm", CALL]), max_size=10),
    is_open=st.booleans(),
    has_tools=st.booleans(),
)
def test_nor_of_any_text_at_all(fragments: list[str], is_open: bool, has_tools: bool) -> None:
    text = "".join(fragments)
    whole = read([text], is_open=is_open, has_tools=has_tools)
    assert read(list(text), is_open=is_open, has_tools=has_tools) == whole
    assert read(fragments, is_open=is_open, has_tools=has_tools) == whole


@pytest.mark.parametrize(
    ("prompt", "continues", "is_open"),
    [
        ("<|assistant|><think>\n", False, True),
        ("<|assistant|>", False, False),
        ("<|assistant|><think>\n\n</think>\n\n", False, False),
        ("what is <think>?<|assistant|>", False, False),
        ("<|assistant|><think>So far", True, True),
        ("<|assistant|><think>So far</think>Yes", True, False),
    ],
)
def test_the_prompt_tells_whether_reasoning_has_begun(prompt: str, continues: bool, is_open: bool) -> None:
    assert TAGS.is_open(prompt, continues=continues) is is_open


def test_the_template_tells_the_tags() -> None:
    assert think_tags_of("{{ message.content.split('</think>')[-1] }}") == TAGS
    assert think_tags_of("[THINK]{{ message.thinking }}[/THINK]") == ThinkTags("[THINK]", "[/THINK]")
    assert think_tags_of("{{ messages }}") is None


@pytest.mark.parametrize("switch", ["enable_thinking", "thinking"])
def test_an_effort_turns_reasoning_on_and_off_where_the_template_has_a_switch(switch: str) -> None:
    source = f"{{% if not {switch} is defined %}}{{% set {switch} = 1 %}}{{% endif %}}{{{{ {switch} }}}}"
    template = ChatTemplate(source)
    assert "reasoning_effort" in template.variables
    messages = [{"role": "user", "content": "?"}]
    assert template.render(messages) == "1"
    assert template.render(messages, options={"reasoning_effort": "none"}) == "False"
    assert template.render(messages, options={"reasoning_effort": "high"}) == "True"
    assert template.render(messages, options={"reasoning_effort": "none", switch: 3}) == "3"


def test_an_effort_is_the_templates_own_where_it_knows_efforts() -> None:
    template = ChatTemplate("{{ reasoning_effort }} {{ enable_thinking }}")
    assert template.render([{"role": "user", "content": "?"}], options={"reasoning_effort": "none"}) == "none "


ASKED = {"id": "call_0123456789abcdef", "type": "function", "function": {"name": "f", "arguments": {"x": "é"}}}


def test_ids_of_calls_are_as_mistrals_templates_take_them() -> None:
    source = "[TOOL_CALLS]{% for m in messages %}{{ (m.tool_calls or [m])[0].id or m.tool_call_id }} {% endfor %}"
    told = ChatTemplate(source).render(
        [
            {"role": "assistant", "content": "", "tool_calls": [ASKED]},
            {"role": "tool", "content": "", "tool_call_id": ASKED["id"]},
            {"role": "tool", "content": "", "tool_call_id": "abcDEF123"},
        ]
    )
    call, result, short = told.removeprefix("[TOOL_CALLS]").split()
    assert call == result
    assert len(call) == 9
    assert call.isalnum()
    assert short == "abcDEF123"


@pytest.mark.parametrize("is_serialised", [False, True])
def test_arguments_are_as_deepseeks_templates_take_them(is_serialised: bool) -> None:
    arguments = "m.tool_calls[0]['function']['arguments']" + (" | tojson" if is_serialised else "")
    source = "{% for m in messages %}<｜tool▁call▁begin｜>{{ 'f' + " + arguments + " }}{% endfor %}"  # noqa: RUF001
    told = ChatTemplate(source).render([{"role": "assistant", "content": "", "tool_calls": [ASKED]}])
    assert told.endswith('f{"x": "é"}')
