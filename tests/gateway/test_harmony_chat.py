"""A model of the harmony format through the official client. The worker says what a test tells it to."""

import json
import re
from collections.abc import Iterator
from typing import Any, cast

import httpx
import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.tagged_world import prompt_of, say, tagged_world, tagging_tokenizer
from tests.gateway.test_harmony import TAGS
from tests.gateway.world import MODEL, Gateway, World, wait_for

TEMPLATE = (
    "<|start|>system<|message|>Reasoning: {{ reasoning_effort or 'medium' }}<|end|>"
    "{% for tool in tools or [] %}<|start|>developer<|message|>{{ tool.function.name }}<|end|>{% endfor %}"
    "{% for message in messages %}"
    "{% if message.thinking %}<|start|>assistant<|channel|>analysis<|message|>{{ message.thinking }}<|end|>{% endif %}"
    "{% if message.tool_calls %}<|start|>assistant to=functions.{{ message.tool_calls[0].function.name }}<|call|>"
    "{% else %}<|start|>{{ message.role }}<|message|>{{ message.content }}<|end|>{% endif %}{% endfor %}"
    "{% if add_generation_prompt %}<|start|>assistant{% endif %}"
)
ANSWER = "<|channel|>analysis<|message|>Hm, warm?<|end|><|start|>assistant<|channel|>final<|message|>It is, in Zürich."
CALL = (
    "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant<|channel|>commentary to=functions.weather "
    '<|constrain|>json<|message|>{"city": "Zürich"}'
)
MESSAGES: list[Any] = [{"role": "user", "content": "Wie warm?"}]
TOOLS: list[Any] = [{"type": "function", "function": {"name": "weather"}}]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    return tagging_tokenizer(TAGS)


@pytest.fixture(scope="module")
def harmony_world(redis_url: str, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Iterator[World]:
    with tagged_world(redis_url, tmp_path_factory.mktemp("harmony"), tokenizer, template=TEMPLATE) as world:
        yield world


@pytest.fixture(scope="module")
def gateway(harmony_world: World) -> Iterator[Gateway]:
    with harmony_world.gateway() as gateway:
        yield gateway


@pytest.fixture
def world(harmony_world: World) -> World:
    harmony_world.reset()
    return harmony_world


@pytest.fixture
def client(gateway: Gateway, world: World) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)


def test_reasoning_is_no_part_of_the_answer(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES)
    message = answer.choices[0].message
    assert (message.content, answer.choices[0].finish_reason) == ("It is, in Zürich.", "stop")
    assert message.model_dump()["reasoning_content"] == "Hm, warm?"
    assert prompt_of(world, tokenizer).endswith("Wie warm?<|end|><|start|>assistant")


def test_reasoning_and_answer_stream_as_they_come(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True)
    deltas = [chunk.choices[0].delta.model_dump() for chunk in stream]
    thoughts = [delta["reasoning_content"] for delta in deltas if delta.get("reasoning_content")]
    words = [delta["content"] for delta in deltas if delta.get("content")]
    assert ("".join(thoughts), "".join(words)) == ("Hm, warm?", "It is, in Zürich.")
    assert len(thoughts) > 2
    assert len(words) > 2


@pytest.mark.parametrize("is_streamed", [False, True])
def test_a_call_is_told(client: openai.OpenAI, world: World, tokenizer: Tokenizer, is_streamed: bool) -> None:
    say(world, tokenizer, CALL)
    asked: dict[str, Any] = {"model": MODEL, "messages": MESSAGES, "tools": TOOLS}
    if is_streamed:
        with client.chat.completions.stream(**asked) as stream:
            choice: Any = stream.get_final_completion().choices[0]
    else:
        choice = client.chat.completions.create(**asked).choices[0]
    assert choice.finish_reason == "tool_calls"
    assert not choice.message.content
    (made,) = choice.message.tool_calls
    assert (made.function.name, json.loads(made.function.arguments)) == ("weather", {"city": "Zürich"})


def test_what_was_said_goes_back(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    made = {"id": "call_1", "type": "function", "function": {"name": "weather", "arguments": "{}"}}
    said: list[Any] = [
        {"role": "assistant", "content": None, "reasoning_content": "I look.", "tool_calls": [made]},
        {"role": "tool", "content": "20", "tool_call_id": "call_1"},
    ]
    client.chat.completions.create(model=MODEL, messages=MESSAGES + said, tools=TOOLS)
    told = "<|channel|>analysis<|message|>I look.<|end|><|start|>assistant to=functions.weather<|call|>"
    assert told in prompt_of(world, tokenizer)


def test_the_effort_is_the_templates(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    client.chat.completions.create(model=MODEL, messages=MESSAGES, reasoning_effort="high")
    assert "Reasoning: high" in prompt_of(world, tokenizer)


def test_responses_have_reasoning_and_calls_too(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, CALL)
    tools: Any = [{"type": "function", "name": "weather"}]
    answer = client.responses.create(model=MODEL, input="Wie warm?", tools=tools, reasoning={"effort": "low"})
    thought, call = cast("list[Any]", answer.output)
    assert (thought.content[0].text, call.name, json.loads(call.arguments)) == (
        "I look.",
        "weather",
        {"city": "Zürich"},
    )
    assert "Reasoning: low" in prompt_of(world, tokenizer)
    with pytest.raises(openai.BadRequestError, match="does not know") as refused:
        client.responses.create(model=MODEL, input="?", reasoning=cast("Any", {"effort": "huge"}))
    assert refused.value.param == "reasoning.effort"


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"reasoning_effort": "huge"}, "reasoning_effort", "does not know.*low, medium, high"),
        ({"chat_template_kwargs": {"reasoning_effort": "a\nb"}}, "reasoning_effort", "does not know"),
        ({"tools": TOOLS, "tool_choice": "required"}, "tool_choice", "none can be forced.*auto"),
    ],
)
def test_what_the_format_cannot_do_is_refused_by_name(
    gateway: Gateway, world: World, fields: dict[str, Any], field: str, message: str
) -> None:
    asked = {"model": MODEL, "messages": MESSAGES, **fields}
    refused = httpx.post(f"{gateway.url}/v1/chat/completions", json=asked, timeout=60)
    assert refused.status_code == 400
    error = refused.json()["error"]
    assert error["param"] == field
    assert re.search(message, error["message"])


def test_a_completion_is_the_text_as_ever(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    answer = client.completions.create(model=MODEL, prompt="x", max_tokens=100)
    assert answer.choices[0].text == tokenizer.decode(list(world.worker.reply))
    wait_for(lambda: world.router.num_open == 0)
