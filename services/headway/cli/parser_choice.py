"""How the answers of the models that `headway up` was asked for are read: --tool-parser and --reasoning-parser."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.answer_parser import check_parsers
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import ModelDeployment

_TOOL, _REASONING = "--tool-parser", "--reasoning-parser"


def with_parsers(
    models: Sequence[ModelDeployment], tool_parsers: Sequence[str], reasoning_parsers: Sequence[str]
) -> tuple[ModelDeployment, ...]:
    """The models with their parsers, of `PARSER` for all and `NAME=PARSER`; InvalidArgumentError where a parser or a
    model is unknown, or two parsers exclude each other."""
    tools, reasonings = _by_model(tool_parsers, _TOOL, models), _by_model(reasoning_parsers, _REASONING, models)
    return tuple(_with_parsers(model, tools=tools, reasonings=reasonings) for model in models)


def _with_parsers(model: ModelDeployment, *, tools: dict[str, str], reasonings: dict[str, str]) -> ModelDeployment:
    tool, reasoning = (found.get(model.name, found.get("", "")) for found in (tools, reasonings))
    check_parsers(tool, reasoning, tool_field=_TOOL, reasoning_field=_REASONING)
    return replace(model, tool_parser=tool, reasoning_parser=reasoning)


def _by_model(texts: Sequence[str], option: str, models: Sequence[ModelDeployment]) -> dict[str, str]:
    names = {model.name for model in models}
    found = {}
    for text in texts:
        name, equals, parser = text.rpartition("=")
        if equals and name not in names:
            raise InvalidArgumentError(
                f"{option} {text} names no model; there are {', '.join(sorted(names))}.", field=option
            )
        found[name] = parser
    return found
