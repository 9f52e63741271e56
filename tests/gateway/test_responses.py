"""/v1/responses through the official client, and reasoning in chats of the same model. The worker says what a test
tells it to.
"""

import json
import re
from collections.abc import Iterator
from typing import Any

import httpx
import openai
import pytest
from pydantic import BaseModel
from tokenizers import Tokenizer

from headway.core.errors import InternalError
from tests.gateway.tagged_world import prompt_of, say, tagged_world, tagging_tokenizer
from tests.gateway.world import MODEL, Gateway, World

TAGS = ("<think>", "</think>", "<tool_call>", "</tool_call>")
TEMPLATE = (
    '{% if tools %}[tools]{{ tools | tojson }}{# <tool_call>{"name": ..., "arguments": ...}</tool_call> #}{% endif %}'
    "{% for message in messages %}[{{ message.role }}]"
    "{% if message.reasoning_content %}<think>{{ message.reasoning_content }}</think>{% endif %}{{ message.content }}"
    "{% for call in message.tool_calls or [] %}<{{ call.function | tojson }}>{% endfor %}{% endfor %}"
    "{% if add_generation_prompt %}[assistant]"
    "{% if enable_thinking is defined and not enable_thinking %}<think></think>{% endif %}"
    "{% if opens %}<think>{% endif %}{% endif %}"
)
ANSWER = "<think>\nHm, warm?\n</think>\n\nIt is, in Zürich."
CALL = '<think>I look.</think>\n<tool_call>\n{"name": "weather", "arguments": {"city": "Zürich"}}\n</tool_call>'
CITY = {"type": "object", "properties": {"city": {"type": "string"}}, "required": ["city"]}
TOOLS: list[Any] = [{"type": "function", "name": "weather", "description": "Of a city.", "parameters": CITY}]
MESSAGES: list[Any] = [{"role": "user", "content": "Wie warm?"}]


@pytest.fixture(scope="module")
def tokenizer() -> Tokenizer:
    """Its tags are special, as those of some checkpoints are."""
    return tagging_tokenizer(TAGS)


@pytest.fixture(scope="module")
def thinking_world(redis_url: str, tmp_path_factory: pytest.TempPathFactory, tokenizer: Tokenizer) -> Iterator[World]:
    with tagged_world(redis_url, tmp_path_factory.mktemp("thinking"), tokenizer, template=TEMPLATE) as world:
        yield world


@pytest.fixture(scope="module")
def gateway(thinking_world: World) -> Iterator[Gateway]:
    with thinking_world.gateway() as gateway:
        yield gateway


@pytest.fixture
def world(thinking_world: World) -> World:
    thinking_world.reset()
    return thinking_world


@pytest.fixture
def client(gateway: Gateway, world: World) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{gateway.url}/v1", api_key="none", max_retries=0)


def test_a_text_is_answered(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    answer = client.responses.create(
        model=MODEL, instructions="Be short.", input="Wie warm?", temperature=0.5, metadata={"a": "b"}
    )
    assert prompt_of(world, tokenizer) == "[system]Be short.[user]Wie warm?[assistant]"
    assert answer.output_text == "It is, in Zürich."
    assert [item.type for item in answer.output] == ["reasoning", "message"]
    thought: Any = answer.output[0]
    assert thought.content[0].text == "Hm, warm?"
    assert (answer.status, answer.object, answer.temperature, answer.metadata) == (
        "completed",
        "response",
        0.5,
        {"a": "b"},
    )
    assert answer.usage is not None
    assert answer.usage.output_tokens == len(world.worker.reply) + 1
    assert answer.usage.input_tokens == len(world.worker.last.prompt_token_ids)
    assert 3 < answer.usage.output_tokens_details.reasoning_tokens < answer.usage.output_tokens
    assert world.worker.last.sampling.temperature == 0.5


def test_events_come_in_their_order(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    events: list[Any] = list(client.responses.create(model=MODEL, input="Wie warm?", stream=True))
    assert [event.sequence_number for event in events] == list(range(len(events)))
    kinds = [event.type.removeprefix("response.") for event in events]
    merged = [kind for kind, before in zip(kinds, ["", *kinds], strict=False) if kind != before]
    assert merged == [
        "created",
        "in_progress",
        "output_item.added",
        "content_part.added",
        "reasoning_text.delta",
        "reasoning_text.done",
        "content_part.done",
        "output_item.done",
        "output_item.added",
        "content_part.added",
        "output_text.delta",
        "output_text.done",
        "content_part.done",
        "output_item.done",
        "completed",
    ]
    assert kinds.count("output_text.delta") > 2
    assert {event.output_index for event in events if event.type == "response.output_text.delta"} == {1}
    text = "".join(event.delta for event in events if event.type == "response.output_text.delta")
    assert text == events[-1].response.output_text == "It is, in Zürich."
    assert events[0].response.status == "in_progress"
    assert events[-1].response.usage.output_tokens == len(world.worker.reply) + 1


def test_the_clients_own_accumulation_agrees(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, CALL)
    with client.responses.stream(model=MODEL, input="Wie warm?", tools=TOOLS) as stream:
        arguments = ""
        for event in stream:
            if event.type == "response.function_call_arguments.delta":
                arguments += event.delta
                assert event.snapshot == arguments
        final = stream.get_final_response()
    call: Any = final.output[1]
    assert (call.type, call.name, json.loads(call.arguments)) == ("function_call", "weather", {"city": "Zürich"})
    assert call.arguments == arguments
    assert call.status == final.status == "completed"


def test_a_conversation_goes_on(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, CALL)
    first = client.responses.create(model=MODEL, input=MESSAGES, tools=TOOLS)
    call: Any = first.output[1]
    result = {"type": "function_call_output", "call_id": call.call_id, "output": "20"}
    say(world, tokenizer, "20.")
    said: list[Any] = [*MESSAGES, *(item.to_dict() for item in first.output), result]
    second = client.responses.create(model=MODEL, instructions="Be short.", input=said)
    assert second.output_text == "20."
    assert prompt_of(world, tokenizer) == (
        "[system]Be short.[user]Wie warm?[assistant]<think>I look.</think>"
        '<{"name": "weather", "arguments": {"city": "Zürich"}}>[tool]20[assistant]'
    )
    more: list[Any] = [*said, *(item.to_dict() for item in second.output), {"role": "user", "content": "So?"}]
    client.responses.create(model=MODEL, input=more)
    assert prompt_of(world, tokenizer).endswith("[tool]20[assistant]20.[user]So?[assistant]")


def test_a_call_that_must_be_is_guided(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, CALL.partition("\n")[2])
    choice: Any = {"type": "function", "name": "weather"}
    answer = client.responses.create(model=MODEL, input="Wie warm?", tools=TOOLS, tool_choice=choice)
    assert [item.type for item in answer.output] == ["function_call"]
    assert world.worker.last.sampling.guide.kind == "grammar"


class Place(BaseModel):
    city: str


def test_a_schema_guides_the_text(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, '{"city": "Bern"}')
    answer = client.responses.parse(model=MODEL, input="Wo?", text_format=Place)
    assert answer.output_parsed == Place(city="Bern")
    guide = world.worker.last.sampling.guide
    assert (guide.kind, json.loads(guide.text)["required"]) == ("json_schema", ["city"])


def test_what_is_cut_says_so(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    asked: dict[str, Any] = {"model": MODEL, "input": "Wie warm?", "max_output_tokens": 6}
    answer = client.responses.create(**asked)
    assert (answer.status, answer.output[-1].status) == ("incomplete", "incomplete")
    assert answer.incomplete_details is not None
    assert answer.incomplete_details.reason == "max_output_tokens"
    assert [*client.responses.create(**asked, stream=True)][-1].type == "response.incomplete"


def test_log_probabilities_of_the_text_come(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, "It is.")
    asked: dict[str, Any] = {"model": MODEL, "input": "?", "top_logprobs": 2}
    message: Any = client.responses.create(**asked, include=["message.output_text.logprobs"]).output[0]
    entries = message.content[0].logprobs
    assert "".join(entry.token for entry in entries).startswith("It is.")
    assert {len(entry.top_logprobs) for entry in entries} == {2}
    streamed = [
        entry.token
        for event in client.responses.create(**asked, stream=True)
        if event.type == "response.output_text.delta"
        for entry in event.logprobs
    ]
    assert "".join(streamed) == "It is."


def test_a_stream_that_breaks_off_says_why(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    world.worker.fail_at = (14, InternalError("The engine broke."))
    last: Any = [*client.responses.create(model=MODEL, input="Wie warm?", stream=True)][-1]
    assert last.type == "response.failed"
    assert "The engine broke." in last.response.error.message
    with pytest.raises(openai.InternalServerError, match="The engine broke"):
        client.responses.create(model=MODEL, input="Wie warm?")


@pytest.mark.parametrize(
    ("fields", "field", "message"),
    [
        ({"previous_response_id": "resp_1"}, "previous_response_id", "answers are not kept.*whole conversation"),
        ({"store": True}, "store", "answers are not kept"),
        ({"background": True}, "background", "not supported"),
        ({"conversation": "c"}, "conversation", "not supported"),
        ({"max_tokens": 3}, "max_tokens", "max_output_tokens"),
        ({"n": 2}, "n", "should be 1"),
        ({"truncation": "auto"}, "truncation", "disabled"),
        ({"tools": [{"type": "web_search"}]}, "tools[0].type", "function"),
        ({"tool_choice": "required"}, "tool_choice", "no tools"),
        ({"input": [{"type": "item_reference", "id": "x"}]}, "input[0]", "item_reference"),
        ({"input": [{"role": "user", "content": [{"type": "input_image"}]}]}, "input[0].content", "no text"),
        ({"input": []}, "input", "at least one"),
        ({"text": {"format": {"type": "json_schema", "name": "x"}}}, "text.format.schema", "has none"),
        ({"max_output_tokens": 100_000}, "max_output_tokens", "100000 .* set max_output_tokens to"),
        ({"max_output_tokens": 0}, "max_output_tokens", "max_output_tokens is 0"),
        (
            {"input": [{"type": "function_call", "call_id": "1", "name": "f", "arguments": "{"}]},
            "input[0].arguments",
            "not valid JSON",
        ),
    ],
    ids=str,
)
def test_what_is_not_supported_is_refused_by_name(
    gateway: Gateway, world: World, fields: dict[str, Any], field: str, message: str
) -> None:
    refused = httpx.post(f"{gateway.url}/v1/responses", json={"model": MODEL, "input": "?", **fields}, timeout=60)
    error = refused.json()["error"]
    assert (refused.status_code, error["param"]) == (400, field), error
    assert re.search(message, error["message"])


def test_fields_that_nobody_knows_are_told(gateway: Gateway, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, "It is.")
    asked = {"model": MODEL, "input": [{"role": "user", "content": "?", "oops": 1}], "store": False, "odd": 2}
    answer = httpx.post(f"{gateway.url}/v1/responses", json=asked, timeout=60)
    assert answer.headers["x-headway-ignored"] == "odd, input[0].oops"
    assert 'path="/v1/responses"' in httpx.get(f"{gateway.url}/metrics").text.replace("handler=", "path=")


def test_reasoning_is_no_part_of_a_chats_answer(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER)
    message = client.chat.completions.create(model=MODEL, messages=MESSAGES).choices[0].message
    assert message.content == "It is, in Zürich."
    assert message.model_dump()["reasoning_content"] == "Hm, warm?"


def test_reasoning_may_have_begun_in_the_prompt(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, ANSWER.removeprefix("<think>"))
    opening: dict[str, Any] = {"chat_template_kwargs": {"opens": True}}
    stream = client.chat.completions.create(model=MODEL, messages=MESSAGES, stream=True, extra_body=opening)
    deltas = [chunk.choices[0].delta.model_dump() for chunk in stream]
    assert "".join(delta.get("reasoning_content") or "" for delta in deltas) == "Hm, warm?"
    assert "".join(delta.get("content") or "" for delta in deltas) == "It is, in Zürich."


def test_no_effort_is_no_reasoning(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    say(world, tokenizer, "It is.")
    client.responses.create(model=MODEL, input="?", reasoning={"effort": "none"})
    assert prompt_of(world, tokenizer).endswith("<think></think>")
