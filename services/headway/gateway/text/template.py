"""Chat templates: a checkpoint's jinja2 source, run in a sandbox with what Hugging Face's templates expect."""

import json
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import Any, NoReturn

from jinja2 import Environment, Template, TemplateError, meta, nodes
from jinja2.ext import Extension, loopcontrols
from jinja2.parser import Parser
from jinja2.sandbox import ImmutableSandboxedEnvironment

from headway.core.answer_parser import ReasoningParser, ToolParser
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.gateway.tools.harmony import EFFORTS, is_harmony
from headway.gateway.tools.retelling import retelling_of
from headway.gateway.tools.syntax import syntax_named, syntax_of
from headway.gateway.tools.think import tags_named, think_tags_of

Message = dict[str, Any]

# As transformers finds the end of a message that is to be continued; the space shows whether the template trims it.
_END_TAG = "CONTINUE_FINAL_MESSAGE_TAG "

_EFFORT = "reasoning_effort"
# Variables by which templates without efforts turn reasoning on and off: Qwen3's, and DeepSeek's.
_SWITCHES = ("enable_thinking", "thinking")


class _GenerationTag(Extension):
    """`{% generation %}` marks the assistant's words for training; for us it is transparent."""

    tags = {"generation"}

    def parse(self, parser: Parser) -> list[nodes.Node]:
        next(parser.stream)
        return parser.parse_statements(("name:endgeneration",), drop_needle=True)


class ChatTemplate:
    """Messages to the text that a model was trained to answer.

    Args:
        source: jinja2.
        bos_token, eos_token: special tokens as text; empty if the model has none.
        now: the local time, for templates that tell the date.
        tool_parser, reasoning_parser: see `core.answer_parser`; empty for what the template shows. Of harmony one
            stands for both.

    Attributes:
        tool_syntax: how the model writes tool calls; None where it knows none, or writes them otherwise.
        is_harmony: whether its answers are messages on channels.
        think_tags: what stands around reasoning; None where it knows none, or tells it otherwise.
        variables: names that the template takes; among them `reasoning_effort` where it has a switch for reasoning.
    """

    def __init__(
        self,
        source: str,
        *,
        bos_token: str = "",
        eos_token: str = "",
        now: Callable[[], datetime] = datetime.now,
        tool_parser: str = "",
        reasoning_parser: str = "",
    ) -> None:
        self._tells_harmony = is_harmony(source)
        named_harmony = tool_parser == ToolParser.HARMONY or reasoning_parser == ReasoningParser.HARMONY
        self.is_harmony = named_harmony or (self._tells_harmony and not tool_parser and not reasoning_parser)
        if self.is_harmony:
            self.tool_syntax, self.think_tags = syntax_named(ToolParser.HARMONY), None
        else:
            self.tool_syntax = syntax_named(ToolParser(tool_parser)) if tool_parser else syntax_of(source)
            self.think_tags = (
                tags_named(ReasoningParser(reasoning_parser)) if reasoning_parser else think_tags_of(source)
            )
        environment = _environment(now)
        self._template = _compile(environment, source)
        self._retell = retelling_of(source)
        known = frozenset(meta.find_undeclared_variables(environment.parse(source)))
        has_effort = self._tells_harmony or _EFFORT in known
        self._switch = "" if has_effort else next((name for name in _SWITCHES if name in known), "")
        self.variables = known | {_EFFORT} if self._switch else known
        self._special_tokens = {"bos_token": bos_token, "eos_token": eos_token}

    def render(
        self,
        messages: Sequence[Message],
        *,
        tools: Sequence[Mapping[str, Any]] | None = None,
        options: Mapping[str, Any] | None = None,
        continue_final_message: bool = False,
    ) -> str:
        """The prompt that ends where the assistant speaks, or where the last message does.

        Args:
            messages: each with 'role' and 'content' (text), as the template reads them.
            tools: what the assistant may call, each as the OpenAI API describes a tool.
            options: further variables, e.g. {'enable_thinking': False} of a certain template, or
                {'add_generation_prompt': False} to end behind the last message and what closes it.
            continue_final_message: whether the assistant is to go on with the last message.

        Raises:
            InvalidArgumentError: the template refuses the messages; the text is its own. Or it does not know the
                reasoning effort.
        """
        if self._tells_harmony:
            _check_effort(options)
        told = self._retell(messages)
        if continue_final_message:
            content = told[-1]["content"]
            tagged = [*told[:-1], {**told[-1], "content": content + _END_TAG}]
            return _cut_at_tag(self._render(tagged, tools, options), content)
        return self._render(told, tools, options)

    def _render(
        self,
        messages: Sequence[Mapping[str, Any]],
        tools: Sequence[Mapping[str, Any]] | None,
        options: Mapping[str, Any] | None,
    ) -> str:
        variables = {
            **self._special_tokens,
            "messages": messages,
            "tools": tools,
            "documents": None,
            "add_generation_prompt": True,
            **self._switched(options or {}),
            **(options or {}),
        }
        try:
            return self._template.render(variables)
        except (TemplateError, TypeError, ValueError, ArithmeticError, LookupError, RecursionError) as error:
            raise InvalidArgumentError(
                f"The model's chat template refuses these messages: {error}.",
                hint="Change roles, order or content of the messages as the model expects them.",
                field="messages",
            ) from error

    def _switched(self, options: Mapping[str, Any]) -> dict[str, bool]:
        """Reasoning on or off by its effort, for templates that know no efforts."""
        return {self._switch: options[_EFFORT] != "none"} if self._switch and _EFFORT in options else {}


def _check_effort(options: Mapping[str, Any] | None) -> None:
    """The templates write whatever they are given into the system message."""
    effort = (options or {}).get("reasoning_effort")
    if effort is not None and effort not in EFFORTS:
        raise InvalidArgumentError(
            f"reasoning_effort is '{str(effort)[:100]}', which the model does not know.",
            hint=f"Set it to {', '.join(EFFORTS)}, or leave it out.",
            field="reasoning_effort",
        )


def _cut_at_tag(text: str, content: str) -> str:
    """Cuts a rendered prompt at the end of its last message. Where the template trims messages, the tag's space is cut
    too.
    """
    tag = text.rfind(_END_TAG.rstrip())
    if tag < 0 or content.strip() not in text:
        raise InvalidArgumentError(
            "The model's chat template changes the last message, which cannot be continued.",
            hint="Leave continue_final_message out.",
            field="continue_final_message",
        )
    return text[:tag] if text.startswith(_END_TAG, tag) else text[:tag].rstrip()


def _environment(now: Callable[[], datetime]) -> Environment:
    environment = ImmutableSandboxedEnvironment(
        trim_blocks=True, lstrip_blocks=True, extensions=[_GenerationTag, loopcontrols]
    )
    environment.filters["tojson"] = _to_json
    environment.globals["raise_exception"] = _raise_exception
    environment.globals["strftime_now"] = lambda format_: now().strftime(format_)
    return environment


def _compile(environment: Environment, source: str) -> Template:
    try:
        return environment.from_string(source)
    except TemplateError as error:
        raise FailedPreconditionError(
            f"The checkpoint's chat template is not valid jinja2: {error}.", hint="Correct chat_template.jinja."
        ) from error


def _raise_exception(message: str) -> NoReturn:
    raise TemplateError(message)


def _to_json(
    value: Any,
    ensure_ascii: bool = False,  # noqa: FBT001, FBT002 - templates pass it by position
    indent: int | None = None,
    separators: tuple[str, str] | None = None,
    sort_keys: bool = False,  # noqa: FBT001, FBT002
) -> str:
    """Formats JSON as transformers does: unlike jinja2's own filter it does not escape HTML."""
    return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)
