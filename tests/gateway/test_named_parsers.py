"""Parsers that users name, against what a chat template shows."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.answer_parser import ReasoningParser, ToolParser
from headway.gateway.served_models import ServedModels
from headway.gateway.text.template import ChatTemplate
from headway.gateway.tools.harmony import HARMONY
from headway.gateway.tools.syntax import MISTRAL, TAGGED, syntax_named
from headway.gateway.tools.think import ThinkTags, tags_named
from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.gateway.world import MODEL, make_plan

MUTE = "{{ messages[-1].content }}"
SHOWS_BOTH = (
    '{% if tools %}<tool_call>{"name": "f", "arguments": {}}</tool_call>{% endif %}<think></think>{{ messages }}'
)
SHOWS_HARMONY = "{% if tools %}namespace functions{% endif %}<|start|>assistant<|channel|>final<|message|>{{ x }}"
THINK = ThinkTags("<think>", "</think>")


def test_every_name_is_of_a_parser() -> None:
    assert all((syntax_named(each) is None) == (each is ToolParser.NONE) for each in ToolParser)
    assert {each for each in ReasoningParser if tags_named(each) is None} == {
        ReasoningParser.HARMONY,
        ReasoningParser.NONE,
    }


@pytest.mark.parametrize(
    ("source", "names", "syntax", "tags", "is_harmony"),
    [
        (MUTE, {}, None, None, False),
        (MUTE, {"tool_parser": "hermes", "reasoning_parser": "deepseek_r1"}, TAGGED, THINK, False),
        (MUTE, {"tool_parser": "mistral"}, MISTRAL, None, False),
        (MUTE, {"reasoning_parser": "openai_gptoss"}, HARMONY, None, True),
        (SHOWS_BOTH, {}, TAGGED, THINK, False),
        (SHOWS_BOTH, {"tool_parser": "none", "reasoning_parser": "none"}, None, None, False),
        (SHOWS_BOTH, {"tool_parser": "mistral"}, MISTRAL, THINK, False),
        (SHOWS_HARMONY, {}, HARMONY, None, True),
        (SHOWS_HARMONY, {"tool_parser": "hermes"}, TAGGED, None, False),
    ],
)
def test_what_is_named_counts_and_the_template_where_nothing_is(
    source: str, names: dict[str, str], syntax: object, tags: ThinkTags | None, *, is_harmony: bool
) -> None:
    template = ChatTemplate(source, **names)  # type: ignore[arg-type]
    assert (template.tool_syntax, template.think_tags, template.is_harmony) == (syntax, tags, is_harmony)


async def test_models_of_one_checkpoint_have_their_own_parsers(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    named = replace(plan.models[0], name="named", tool_parser="hermes", reasoning_parser="qwen3")
    await PlanStore(database).set_current(replace(plan, models=(plan.models[0], named)), replaces="")
    served_models = ServedModels(PlanStore(database))
    await served_models.follower.refresh()
    plain, other = (served_models.models[name].template for name in (MODEL, "named"))
    assert plain is not None
    assert other is not None
    assert (other.tool_syntax, other.think_tags) == (TAGGED, THINK)
    assert plain.think_tags != THINK
