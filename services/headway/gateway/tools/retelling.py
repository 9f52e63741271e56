"""Conversations as the chat templates of some families read them. Pure."""

import re
from collections.abc import Callable, Mapping, Sequence
from typing import Any, TypeAlias

from headway.gateway.tools.call import json_text
from headway.gateway.tools.harmony import is_harmony
from headway.gateway.tools.harmony_messages import harmony_messages
from headway.gateway.tools.mistral import mistral_messages
from headway.gateway.tools.tags import DEEPSEEK_CALL_START, MISTRAL_CALL

Messages: TypeAlias = Sequence[Mapping[str, Any]]

_SERIALISES = re.compile(r"arguments['\"]?\s*\]?\s*\|\s*tojson")


def retelling_of(template: str) -> Callable[[Messages], Messages]:
    """What makes of the messages of a request those that a template reads."""
    if is_harmony(template):
        return harmony_messages
    if MISTRAL_CALL in template:
        return mistral_messages
    if DEEPSEEK_CALL_START in template and not _SERIALISES.search(template):
        return _with_arguments_as_text
    return _as_they_are


def _as_they_are(messages: Messages) -> Messages:
    return messages


def _with_arguments_as_text(messages: Messages) -> Messages:
    """DeepSeek's own templates join the arguments of calls to other texts."""
    return [_with_texts(message) if message.get("tool_calls") else message for message in messages]


def _with_texts(message: Mapping[str, Any]) -> Mapping[str, Any]:
    calls = [
        call | {"function": call["function"] | {"arguments": json_text(call["function"]["arguments"])}}
        for call in message["tool_calls"]
    ]
    return {**message, "tool_calls": calls}
