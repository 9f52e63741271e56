"""A request's tools, once its model is known."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from headway.core.errors import InvalidArgumentError
from headway.gateway.constraint import check_guide
from headway.gateway.model import ServedModel
from headway.gateway.options import Options
from headway.gateway.tools.harmony import HarmonyParser
from headway.gateway.tools.parser import AnswerParser, WordParser
from headway.gateway.tools.syntax import ToolSyntax
from headway.gateway.tools.think import ThinkParser
from headway.gateway.tools.tool import Toolbox


@dataclass(frozen=True, slots=True)
class ToolUse:
    """Tools in the syntax that the model writes calls in."""

    toolbox: Toolbox
    syntax: ToolSyntax

    @property
    def documents(self) -> Sequence[Mapping[str, Any]]:
        """Returns the tools' documents for the chat template."""
        return [tool.document for tool in self.toolbox.tools]

    def parser(self) -> AnswerParser:
        """Returns a new parser for one answer."""
        return self.syntax.parser(self.toolbox)

    def constrain(self, options: Options) -> Options:
        """Guides the answer where it must be a call; InvalidArgumentError where the syntax has no such guide."""
        if not self.toolbox.required:
            return options
        guide = self.syntax.guide(self.toolbox)
        return replace(options, constraints=replace(options.constraints, guide=guide, guide_field="tools"))


async def tool_use(toolbox: Toolbox, *, model: ServedModel, options: Options) -> ToolUse:
    """Checks that the model can use the tools.

    Raises:
        InvalidArgumentError: its chat template teaches it no tools, the answer is guided otherwise, or the schema of
            a tool that must be called cannot be followed.
    """
    syntax = None if model.template is None else model.template.tool_syntax
    if syntax is None:
        raise InvalidArgumentError(
            f"The chat template of the model '{model.name}' has no tools, or a syntax of calls that is not read here.",
            hint='Leave tools out, set tool_choice to "none", or use a model with calls as Hermes, Llama 3, Mistral, '
            "DeepSeek, Qwen3-Coder, Python or harmony write them. Where it writes them so, its operator can say it: "
            "--tool-parser.",
            field="tools",
        )
    if options.constraints.guide is not None:
        raise InvalidArgumentError(
            f"tools and {options.constraints.guide_field} exclude each other.",
            hint='Leave one of them out, or set tool_choice to "none".',
            field="tools",
        )
    for tool in toolbox.required:
        await check_guide(tool.guide, model=model, field=tool.field)
    return ToolUse(toolbox, syntax)


def parser_of(
    model: ServedModel, use: ToolUse | None, *, options: Options, prompt: str, continues: bool
) -> Callable[[], AnswerParser] | None:
    """What makes parsers of a chat's answers; None where they are words and nothing else.

    A guided answer has no reasoning: the guide holds from its first token on.

    Args:
        use: the tools of the request; None for none.
        prompt: the text that the answer follows.
        continues: whether that ends with a message that is to be continued.
    """
    template = model.template
    if template is None or template.is_harmony:
        plain = None if template is None else HarmonyParser
        return plain if use is None else use.parser
    tags = template.think_tags
    if tags is None or options.constraints.guide is not None:
        return None if use is None else use.parser
    make_answer, is_open = WordParser if use is None else use.parser, tags.is_open(prompt, continues=continues)
    return lambda: ThinkParser(make_answer(), tags=tags, is_open=is_open)


def shown_for_parser(model: ServedModel, options: Options) -> Options:
    """The options of a chat with special tokens in the text, where the answer's parts are told by them."""
    is_harmony = model.template is not None and model.template.is_harmony
    return replace(options, skip_special_tokens=False) if is_harmony else options
