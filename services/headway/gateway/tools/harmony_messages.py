"""A conversation as the chat templates of the harmony format read it. Pure."""

from collections.abc import Mapping, Sequence
from typing import Any

Message = dict[str, Any]


def harmony_messages(messages: Sequence[Mapping[str, Any]]) -> list[Message]:
    """The messages of a request, with reasoning where the template looks for it, and one call in each message.

    The templates write the first call of a message only, and give a tool's result the name of the call before it: so
    several calls become messages of their own, each followed by its result. Words beside a call count as reasoning.
    """
    told: list[Message] = []
    rest = [dict(message) for message in messages]
    while rest:
        message = _with_thinking(rest.pop(0))
        calls = message.get("tool_calls") or []
        if len(calls) < 2:
            told.append(message)
            continue
        results = []
        while rest and rest[0]["role"] == "tool":
            results.append(rest.pop(0))
        for number, call in enumerate(calls):
            told.append(message | {"tool_calls": [call]} if number == 0 else _bare_call(call))
            told += _take_results(results, call)
        told += results
    return told


def _with_thinking(message: Message) -> Message:
    reasoning = message.pop("reasoning_content", "")
    if message["role"] != "assistant":
        return message
    if message.get("tool_calls") and reasoning and message["content"]:
        reasoning, message["content"] = f"{reasoning}\n{message['content']}", ""
    return message | ({"thinking": reasoning} if reasoning else {})


def _bare_call(call: Mapping[str, Any]) -> Message:
    return {"role": "assistant", "content": "", "tool_calls": [call]}


def _take_results(results: list[Message], call: Mapping[str, Any]) -> list[Message]:
    """Takes the results of a call out of the list: those that name it, or the first where none names any call."""
    if "id" not in call or all("tool_call_id" not in result for result in results):
        return [results.pop(0)] if results else []
    own = [result for result in results if result.get("tool_call_id") == call["id"]]
    results[:] = [result for result in results if result.get("tool_call_id") != call["id"]]
    return own
