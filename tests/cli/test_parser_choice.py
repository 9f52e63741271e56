"""How answers are read, where users say it: --tool-parser and --reasoning-parser."""

from pathlib import Path

import pytest

from headway.cli.models import read_models
from headway.cli.parser_choice import with_parsers
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import ModelDeployment
from headway.core.slo import Slo


@pytest.fixture
def models(checkpoint: Path) -> tuple[ModelDeployment, ...]:
    return read_models([f"a={checkpoint}", f"b={checkpoint}"], dtype=None, max_model_len=None, slo=Slo())


def test_a_parser_is_of_all_models_or_of_one(models: tuple[ModelDeployment, ...]) -> None:
    a, b = with_parsers(models, ["hermes", "b=none"], ["b=qwen3"])
    assert (a.tool_parser, a.reasoning_parser) == ("hermes", "")
    assert (b.tool_parser, b.reasoning_parser) == ("none", "qwen3")
    assert with_parsers(models, [], []) == models


@pytest.mark.parametrize(
    ("tools", "reasonings", "words", "hint"),
    [
        (["hermess"], [], "--tool-parser 'hermess' is unknown", "hermes, llama3_json, mistral"),
        ([], ["b=r1"], "--reasoning-parser 'r1' is unknown", "deepseek_r1, qwen3"),
        (["c=hermes"], [], "--tool-parser c=hermes names no model; there are a, b", ""),
        (["hermes"], ["openai_gptoss"], "exclude each other: harmony has calls and reasoning in one", "Leave one"),
    ],
)
def test_a_wrong_name_lists_the_right_ones(
    models: tuple[ModelDeployment, ...], tools: list[str], reasonings: list[str], words: str, hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=words) as refused:
        with_parsers(models, tools, reasonings)
    assert hint in refused.value.hint
