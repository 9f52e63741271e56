"""The parsers of answers by the names that users give them, which are vLLM's. Pure."""

from enum import StrEnum

from headway.core.errors import InvalidArgumentError


class ToolParser(StrEnum):
    """How a model writes tool calls."""

    HERMES = "hermes"
    LLAMA3_JSON = "llama3_json"
    MISTRAL = "mistral"
    DEEPSEEK_V3 = "deepseek_v3"
    DEEPSEEK_V31 = "deepseek_v31"
    QWEN3_CODER = "qwen3_coder"
    PYTHONIC = "pythonic"
    HARMONY = "openai"
    NONE = "none"


class ReasoningParser(StrEnum):
    """How a model marks its reasoning."""

    DEEPSEEK_R1 = "deepseek_r1"
    QWEN3 = "qwen3"
    MISTRAL = "mistral"
    HARMONY = "openai_gptoss"
    NONE = "none"


def check_parsers(tool: str, reasoning: str, *, tool_field: str, reasoning_field: str) -> None:
    """
    Args:
        tool, reasoning: names; empty for what the chat template shows.
        tool_field, reasoning_field: what they are called where the user wrote them.

    Raises:
        InvalidArgumentError: one is unknown, or only one of them is that of harmony, which has both in one.
    """
    known: tuple[tuple[str, str, type[StrEnum]], ...] = (
        (tool, tool_field, ToolParser),
        (reasoning, reasoning_field, ReasoningParser),
    )
    for name, field, kinds in known:
        if name and name not in tuple(kinds):
            raise InvalidArgumentError(
                f"{field} '{name}' is unknown.", hint=f"There are {', '.join(kinds)}.", field=field
            )
    is_harmony = (tool == ToolParser.HARMONY, reasoning == ReasoningParser.HARMONY)
    if tool and reasoning and any(is_harmony) and not all(is_harmony):
        raise InvalidArgumentError(
            f"{tool_field} {tool} and {reasoning_field} {reasoning} exclude each other: harmony has calls and "
            "reasoning in one.",
            hint="Leave one of them out.",
            field=tool_field,
        )
