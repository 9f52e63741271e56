"""The harmony format in text, cut anywhere, and conversations for its templates."""

from itertools import pairwise
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from headway.core.errors import InvalidArgumentError
from headway.gateway.tools.harmony import HARMONY, HarmonyParser, is_harmony
from headway.gateway.tools.harmony_messages import harmony_messages
from headway.gateway.tools.reasoning import Reasoning
from headway.gateway.tools.syntax import syntax_of
from headway.gateway.tools.tool import Tool, Toolbox
from tests.gateway.call_pieces import Read, read_all

TAGS = ("<|start|>", "<|channel|>", "<|constrain|>", "<|message|>", "<|end|>", "<|call|>", "<|return|>")
THOUGHT = "<|channel|>analysis<|message|>Hm, 1 < 2.<|end|>"
FINAL = "<|start|>assistant<|channel|>final<|message|>It is.\n"
CALL = '<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>{"x": "é<"}<|call|>'


def read(pieces: list[str], *, is_parallel: bool = True) -> Read:
    return read_all(HarmonyParser(names=("f", "g"), is_parallel=is_parallel), pieces)


CASES: list[tuple[str, Read]] = [
    (THOUGHT + FINAL, ("Hm, 1 < 2.", "It is.\n", [])),
    (THOUGHT + FINAL + "<|return|>", ("Hm, 1 < 2.", "It is.\n", [])),
    (THOUGHT + CALL, ("Hm, 1 < 2.", "", [("f", '{"x": "é<"}')])),
    (CALL.removesuffix("<|call|>"), ("", "", [("f", '{"x": "é<"}')])),
    (CALL + CALL, ("", "", [("f", '{"x": "é<"}'), ("f", '{"x": "é<"}')])),
    (" to=functions.g<|channel|>commentary json<|message|>{}<|call|>", ("", "", [("g", "{}")])),
    ("<|channel|>analysis to=functions.g<|message|><|call|>", ("", "", [("g", "{}")])),
    ("<|channel|>commentary<|message|>First this.<|end|>" + CALL, ("", "First this.", [("f", '{"x": "é<"}')])),
    ("<|channel|>commentary<|message|>First this.<|end|>" + FINAL, ("", "First this.\nIt is.\n", [])),
    (THOUGHT + "<|start|>assistant" + THOUGHT + FINAL, ("Hm, 1 < 2.\nHm, 1 < 2.", "It is.\n", [])),
    ("<|channel|>analysis<|message|>So<|channel|>final<|message|>Yes", ("So", "Yes", [])),
    ("<|channel|>commentary to=python<|message|>print(1)<|call|>", ("print(1)", "", [])),
    ("<|channel|>analysis<|message|>cut sh", ("cut sh", "", [])),
    ("<|channel|>anal", ("", "", [])),
    (THOUGHT + "<|start|>assistant<|channel|>fin", ("Hm, 1 < 2.", "", [])),
    (" to=functions.f", ("", "", [])),
    ("<|start|>assistant<|channel|>final<|message|>whole", ("", "whole", [])),
    ('{"a": "guided"}', ("", '{"a": "guided"}', [])),
    (" and so on, to=be <|continued|>", ("", " and so on, to=be <|continued|>", [])),
    ("t", ("", "t", [])),
    ("to be", ("", "to be", [])),
    ("<|chan of words", ("", "<|chan of words", [])),
    ("  ", ("", "  ", [])),
    ("", ("", "", [])),
    (
        "<|channel|>commentary to=functions.h <|constrain|>json<|message|>{}<|call|>",
        ("", "<|channel|>commentary to=functions.h <|constrain|>json<|message|>{}", []),
    ),
]


@pytest.mark.parametrize(("text", "expected"), CASES)
def test_reasoning_words_and_calls_are_told_apart(text: str, expected: Read) -> None:
    assert read([text]) == expected


@settings(max_examples=60, deadline=None)
@given(text=st.sampled_from([text for text, _ in CASES]), data=st.data())
def test_it_does_not_matter_where_the_text_is_cut(text: str, data: st.DataObject) -> None:
    cuts = data.draw(st.lists(st.integers(0, len(text)), max_size=12).map(sorted))
    pieces = [text[start:stop] for start, stop in pairwise([0, *cuts, len(text)])]
    assert read(pieces) == read([text]) == read(list(text))


_FRAGMENTS = st.sampled_from(
    [
        *TAGS,
        "analysis",
        "final",
        "commentary",
        " to=functions.f",
        " to=browser.search",
        "<|",
        "t",
        " ",
        "json",
        "{}",
        "\n",
        "é",
    ]
)


@settings(max_examples=60, deadline=None)
@given(fragments=st.lists(_FRAGMENTS, max_size=14), is_parallel=st.booleans())
def test_nor_of_any_text_at_all(fragments: list[str], is_parallel: bool) -> None:
    text = "".join(fragments)
    whole = read([text], is_parallel=is_parallel)
    assert read(list(text), is_parallel=is_parallel) == whole == read(fragments, is_parallel=is_parallel)
    assert is_parallel or len(whole[2]) <= 1


def test_of_calls_that_may_not_be_parallel_the_first_counts() -> None:
    assert read([THOUGHT + CALL + CALL + FINAL], is_parallel=False) == ("Hm, 1 < 2.", "", [("f", '{"x": "é<"}')])


def test_what_is_certain_goes_out_as_it_comes() -> None:
    parser = HarmonyParser(names=("f",))
    for token in ("<|channel|>", "analysis", "<|message|>"):
        assert parser.push(token) == []
    assert parser.push("So") == [Reasoning("So")]
    assert parser.push(" it is") == [Reasoning(" it is")]
    assert parser.push("<|end|>") == []
    parser.push("<|start|>assistant<|channel|>commentary to=functions.f <|constrain|>json<|message|>")
    assert len(parser.push('{"a"')) == 1
    assert len(parser.push(": 1}")) == 1


def test_the_template_tells_the_format() -> None:
    source = "{% if tools %}namespace functions{% endif %}<|start|>assistant<|channel|>final<|message|>{{ messages }}"
    assert is_harmony(source)
    assert syntax_of(source) is HARMONY
    assert not is_harmony("<|start_header_id|>assistant<|end_header_id|>{{ messages }}")


def test_a_call_that_must_be_is_refused() -> None:
    tool = Tool(name="f", parameters={"type": "object"}, document={})
    with pytest.raises(InvalidArgumentError, match=r"harmony.*forced") as refused:
        HARMONY.guide(Toolbox(tools=(tool,), required=(tool,)))
    assert refused.value.field == "tool_choice"


def call(name: str) -> dict[str, Any]:
    return {"id": f"call_{name}", "type": "function", "function": {"name": name, "arguments": {}}}


def result(name: str) -> dict[str, Any]:
    return {"role": "tool", "content": name, "tool_call_id": f"call_{name}"}


def test_calls_stand_beside_their_results_and_reasoning_where_the_template_looks() -> None:
    asked = [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "I look.", "reasoning_content": "Hm.", "tool_calls": [call("f"), call("g")]},
        result("g"),
        result("f"),
        {"role": "assistant", "content": "So.", "reasoning_content": "Ah."},
    ]
    assert harmony_messages(asked) == [
        {"role": "user", "content": "?"},
        {"role": "assistant", "content": "", "thinking": "Hm.\nI look.", "tool_calls": [call("f")]},
        result("f"),
        {"role": "assistant", "content": "", "tool_calls": [call("g")]},
        result("g"),
        {"role": "assistant", "content": "So.", "thinking": "Ah."},
    ]
    assert asked[1]["tool_calls"] == [call("f"), call("g")], "the client's messages are as they were"


def test_results_without_ids_go_by_their_order() -> None:
    results = [{"role": "tool", "content": name} for name in ("f", "g", "more")]
    asked = [{"role": "assistant", "content": "", "tool_calls": [call("f"), call("g")]}, *results]
    told = harmony_messages(asked)
    assert [message["content"] for message in told if message["role"] == "tool"] == ["f", "g", "more"]
    assert [bool(message.get("tool_calls")) for message in told] == [True, False, True, False, False]
