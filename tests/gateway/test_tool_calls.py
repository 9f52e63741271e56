"""Tool calls through the official client. The worker says what a test tells it to."""

import json
from typing import Any

import openai
import pytest
from tokenizers import Tokenizer

from headway.core.grammar import grammar_fault
from headway.core.request import Guide, GuideKind
from tests.gateway.scripted_worker import ScriptedWorker
from tests.gateway.world import MODEL, PLAIN_MODEL, World

MESSAGES: list[Any] = [{"role": "user", "content": "Wie warm?"}]
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [
    {"type": "function", "function": {"name": "weather", "description": "Of a city.", "parameters": CITY}},
    {"type": "function", "function": {"name": "time"}},
]
CALLS = (
    'Let me look. \n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich {\\"x\\"}"}}\n</tool_call>\n'
    '<tool_call>\n{"name": "time", "arguments": {}}\n</tool_call>'
)


@pytest.fixture
def worker(world: World) -> ScriptedWorker:
    return world.worker


def say(worker: ScriptedWorker, tokenizer: Tokenizer, text: str) -> None:
    worker.reply = tuple(tokenizer.encode(text).ids)


def test_calls_are_told_from_words(client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer) -> None:
    say(worker, tokenizer, CALLS)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS)
    message = answer.choices[0].message
    assert message.content == "Let me look."
    assert answer.choices[0].finish_reason == "tool_calls"
    calls = message.tool_calls or []
    assert [(call.type, call.function.name, json.loads(call.function.arguments)) for call in calls] == [
        ("function", "weather", {"city": 'Zürich {"x"}'}),
        ("function", "time", {}),
    ]
    assert len({call.id for call in calls}) == 2
    prompt = tokenizer.decode(list(worker.last.prompt_token_ids))
    assert prompt == "[tools]weather time[user]Wie warm?[assistant]"


def test_calls_stream_name_first_and_arguments_in_pieces(
    client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer
) -> None:
    say(worker, tokenizer, CALLS)
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, stream=True)
    choices = [chunk.choices[0] for chunk in stream]
    assert [choice.finish_reason for choice in choices if choice.finish_reason] == ["tool_calls"]
    assert "".join(choice.delta.content or "" for choice in choices) == "Let me look."
    deltas = [delta for choice in choices for delta in choice.delta.tool_calls or ()]
    names = [(delta.index, delta.function.name) for delta in deltas if delta.function and delta.function.name]
    assert names == [(0, "weather"), (1, "time")]
    assert [delta.index for delta in deltas if delta.id] == [0, 1]
    arguments = {0: "", 1: ""}
    for delta in deltas:
        arguments[delta.index] += (delta.function and delta.function.arguments) or ""
    assert arguments == {0: '{"city": "Zürich {\\"x\\"}"}', 1: "{}"}
    assert sum(delta.index == 0 for delta in deltas) > 5


def test_the_clients_own_accumulation_agrees(
    client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer
) -> None:
    say(worker, tokenizer, CALLS)
    with client.chat.completions.stream(model=MODEL, messages=MESSAGES, tools=TOOLS) as stream:
        final = stream.get_final_completion()
    calls = final.choices[0].message.tool_calls or []
    assert [(call.function.name, call.function.arguments) for call in calls] == [
        ("weather", '{"city": "Zürich {\\"x\\"}"}'),
        ("time", "{}"),
    ]


def test_words_alone_stay_words(client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer) -> None:
    say(worker, tokenizer, "It is 3 < 4, <tool_call> or not.\n")
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS)
    assert answer.choices[0].message.content == "It is 3 < 4, <tool_call> or not.\n"
    assert answer.choices[0].message.tool_calls is None
    assert answer.choices[0].finish_reason == "stop"


def test_a_call_that_is_cut_says_so(client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer) -> None:
    say(worker, tokenizer, CALLS)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, max_tokens=60)
    assert answer.choices[0].finish_reason == "length"
    call = (answer.choices[0].message.tool_calls or [])[0]
    assert '{"city": "Zürich'.startswith(call.function.arguments[:8])


def test_one_call_at_a_time(client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer) -> None:
    say(worker, tokenizer, CALLS)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, parallel_tool_calls=False)
    assert [call.function.name for call in answer.choices[0].message.tool_calls or []] == ["weather"]


def test_log_probabilities_of_all_tokens_come(
    client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer
) -> None:
    say(worker, tokenizer, CALLS)
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS, "logprobs": True}
    whole = client.chat.completions.create(**asked).choices[0].logprobs
    assert whole is not None
    streamed = []
    for chunk in client.chat.completions.create(**asked, stream=True):
        if chunk.choices[0].logprobs is not None:
            streamed += chunk.choices[0].logprobs.content or []
    assert streamed == whole.content
    assert len(streamed) == len(worker.reply)


@pytest.mark.parametrize("choice", ["required", {"type": "function", "function": {"name": "weather"}}])
def test_a_call_that_must_be_is_guided(
    client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer, choice: Any
) -> None:
    say(worker, tokenizer, '<tool_call>\n{"name": "weather", "arguments": {"city": "Bern"}}\n</tool_call>')
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice=choice)
    assert answer.choices[0].message.content is None
    assert answer.choices[0].finish_reason == "tool_calls"
    guide = worker.last.sampling.guide
    assert guide.kind == "grammar"
    assert grammar_fault(Guide(GuideKind.GRAMMAR, guide.text)) == ""
    assert ("time" in guide.text) == (choice == "required")


def test_none_hides_the_tools(client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer) -> None:
    say(worker, tokenizer, CALLS)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS, tool_choice="none")
    assert answer.choices[0].message.content == CALLS
    assert tokenizer.decode(list(worker.last.prompt_token_ids)) == "[user]Wie warm?[assistant]"


def test_calls_and_their_results_go_back_to_the_model(
    client: openai.OpenAI, worker: ScriptedWorker, tokenizer: Tokenizer
) -> None:
    say(worker, tokenizer, CALLS)
    message = client.chat.completions.create(model=MODEL, messages=MESSAGES, tools=TOOLS).choices[0].message
    results = [
        {"role": "tool", "tool_call_id": call.id, "content": f"result {i}"}
        for i, call in enumerate(message.tool_calls or [])
    ]
    worker.reply = ()
    history = [*MESSAGES, message.model_dump(), *results]
    client.chat.completions.create(model=MODEL, messages=history, tools=TOOLS, max_tokens=1)
    prompt = tokenizer.decode(list(worker.last.prompt_token_ids))
    assert '<{"name": "weather", "arguments": {"city": "Zürich {\\"x\\"}"}}>' in prompt
    assert prompt.endswith("[tool]result 0[tool]result 1[assistant]")


def test_a_model_without_tools_says_so(client: openai.OpenAI) -> None:
    with pytest.raises(openai.BadRequestError, match="has no tools") as caught:
        client.chat.completions.create(model=PLAIN_MODEL, messages=MESSAGES, tools=TOOLS)
    assert caught.value.param == "tools"
