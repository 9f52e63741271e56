"""The tags by which models mark parts of their answers."""

CALL_START, CALL_END = "<tool_call>", "</tool_call>"
FUNCTION_START, FUNCTION_END = "<function=", "</function>"
PARAMETER_START, PARAMETER_END = "<parameter=", "</parameter>"

MISTRAL_CALL, MISTRAL_ID, MISTRAL_ARGUMENTS = "[TOOL_CALLS]", "[CALL_ID]", "[ARGS]"

DEEPSEEK_CALLS_START, DEEPSEEK_CALLS_END = "<｜tool▁calls▁begin｜>", "<｜tool▁calls▁end｜>"  # noqa: RUF001
DEEPSEEK_CALL_START, DEEPSEEK_CALL_END = "<｜tool▁call▁begin｜>", "<｜tool▁call▁end｜>"  # noqa: RUF001
DEEPSEEK_SEPARATOR = "<｜tool▁sep｜>"  # noqa: RUF001

THINK_START, THINK_END = "<think>", "</think>"
MISTRAL_THINK_START, MISTRAL_THINK_END = "[THINK]", "[/THINK]"

SHOWN = frozenset(
    {
        CALL_START,
        CALL_END,
        MISTRAL_CALL,
        MISTRAL_ID,
        MISTRAL_ARGUMENTS,
        DEEPSEEK_CALLS_START,
        DEEPSEEK_CALLS_END,
        DEEPSEEK_CALL_START,
        DEEPSEEK_CALL_END,
        DEEPSEEK_SEPARATOR,
        THINK_START,
        THINK_END,
        MISTRAL_THINK_START,
        MISTRAL_THINK_END,
    }
)
"""Some checkpoints mark these as special tokens; they are part of the text all the same, so that it can be read."""
