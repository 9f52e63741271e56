"""Fields that clients of other servers send: what they do, and what becomes of those that nobody knows."""

import json
from collections.abc import Iterator

import httpx
import openai
import pytest
from tokenizers import Tokenizer

from headway.core.errors import InvalidArgumentError
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, read_request
from tests.gateway.test_errors import CHAT, COMPLETIONS, TOOL, USER, chat, check_error, completion
from tests.gateway.vocabularies import EOS
from tests.gateway.world import MODEL, PLAIN_MODEL, Gateway, World

IGNORED = "x-headway-ignored"


@pytest.fixture(scope="module")
def running_strict_gateway(shared_world: World) -> Iterator[Gateway]:
    with shared_world.gateway("--strict-fields") as gateway:
        yield gateway


@pytest.fixture
def strict(running_strict_gateway: Gateway, world: World) -> Gateway:
    """Refuses what it does not know."""
    return running_strict_gateway


def post(gateway: Gateway, path: str, body: dict[str, object]) -> httpx.Response:
    response = httpx.post(gateway.url + path, json=body)
    assert response.status_code == 200, response.text
    return response


def events(response: httpx.Response) -> list[dict]:
    lines = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert lines.pop() == "[DONE]"
    return [json.loads(line) for line in lines]


@pytest.mark.parametrize(
    ("path", "body", "ignored"),
    [
        (COMPLETIONS, completion(), None),
        (COMPLETIONS, completion(frobnicate=1, user="me", nothing=None, temprature=2), "frobnicate, temprature"),
        (COMPLETIONS, completion(stream_options={"include_usage": True, "usage": 1}), "stream_options.usage"),
        (COMPLETIONS, completion(stream=True, frobnicate=1), "frobnicate"),
        (CHAT, chat(messages=[USER, {**USER, "mood": "good"}], echo=True), "echo, messages[1].mood"),
        (CHAT, chat(tools=[{"type": "function", "x": 1, "function": {"name": "f", "y": 2}}]),
         "tools[0].x, tools[0].function.y"),
        (CHAT, chat(response_format={"type": "json_object", "z": 1}), "response_format.z"),
        (CHAT, chat(reasoning_effort="low", documents=[{"text": "x"}]), "documents, reasoning_effort"),
        (COMPLETIONS, completion(**{"a b\r\nx-evil: 1": 1}), "a?b??x-evil:?1"),
    ],
)  # fmt: skip
def test_unknown_fields_are_ignored_and_named(
    gateway: Gateway, path: str, body: dict[str, object], ignored: str | None
) -> None:
    assert post(gateway, path, body).headers.get(IGNORED) == ignored


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        (COMPLETIONS, completion(stream_options={"usage": True}), "stream_options.usage", "Unknown field"),
        (COMPLETIONS, completion(temprature=1), "temprature", "Did you mean temperature"),
        (COMPLETIONS, completion(frobnicate=1), "frobnicate", "Known fields"),
        (CHAT, chat(echo=True), "echo", "Unknown field"),
        (CHAT, chat(messages=[{**USER, "mood": "good"}]), "messages[0].mood", "Unknown field"),
        (CHAT, chat(reasoning_effort="low"), "reasoning_effort", "takes no reasoning_effort"),
        (COMPLETIONS, completion(**{"x" * 5000: 1}), "x" * 64, "Unknown field"),
    ],
)
def test_a_strict_gateway_refuses_them_by_name(
    strict: Gateway, path: str, body: dict[str, object], param: str, words: str
) -> None:
    check_error(httpx.post(strict.url + path, json=body), status=400, param=param, code=None, words=words)


@pytest.mark.parametrize("nested", [False, True])
@pytest.mark.parametrize("is_strict", [False, True])
def test_of_a_body_full_of_unknown_fields_few_are_told(is_strict: bool, nested: bool) -> None:
    unknown = {f"field-{i}": i for i in range(300_000)} | {"long" * 500_000: 1}
    body = completion(stream_options=unknown) if nested else completion(**unknown)
    ignored = IgnoredFields(is_strict=is_strict)
    if is_strict:
        with pytest.raises(InvalidArgumentError, match="field-0"):
            read_request(CompletionRequest, body, ignored=ignored)
    else:
        read_request(CompletionRequest, body, ignored=ignored)
        ((_, names),) = ignored.headers
        assert len(names) < 16 * 66
        assert names.endswith(b", ...")


def test_null_is_the_default_within_other_fields_too() -> None:
    call = {"id": None, "function": {"name": "f", "arguments": None}}
    body = chat(
        messages=[USER, {"role": "assistant", "content": None, "tool_calls": [call]}],
        stream_options={"include_usage": None},
        tools=[{"type": "function", "function": {"name": "f", "parameters": None, "strict": None}}],
    )
    request = read_request(ChatRequest, body, ignored=IgnoredFields(is_strict=True))
    assert request.chat_messages()[1]["tool_calls"] == [{**TOOL, "function": {"name": "f", "arguments": {}}}]
    assert not request.parts.usage
    assert request.toolbox is not None
    assert [(tool.document, tool.parameters) for tool in request.toolbox.tools] == [(TOOL, {"type": "object"})]


def test_an_item_of_reasoning_may_have_no_content() -> None:
    items = [{"type": "reasoning", "summary": [], "content": None, "status": None}]
    request = read_request(ResponseRequest, {"model": MODEL, "input": items}, ignored=IgnoredFields(is_strict=True))
    assert request.chat_messages()[0]["reasoning_content"] == ""


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        (COMPLETIONS, completion(prompt_logprobs=21), "prompt_logprobs", "between 0 and 20"),
        (COMPLETIONS, completion(prompt_logprobs=-1), "prompt_logprobs", "between 0 and 20"),
        (COMPLETIONS, completion(prompt_logprobs=1, stream=True), "prompt_logprobs", "not available with stream"),
        (COMPLETIONS, completion(prompt_logprobs=1, beam_width=2, n=1), "prompt_logprobs", "beam search"),
        (COMPLETIONS, completion(cache_salt=""), "cache_salt", "at least 1"),
        (COMPLETIONS, completion(cache_salt="x" * 1025), "cache_salt", "between 0 and 1024"),
        (COMPLETIONS, completion(cache_salt=5), "cache_salt", "valid string"),
        (COMPLETIONS, completion(cache_salt="gold\0"), "cache_salt", "NUL"),
        (COMPLETIONS, completion(return_token_ids="yes"), "return_token_ids", "valid boolean"),
        (CHAT, chat(continue_final_message=True, add_generation_prompt=True), "continue_final_message", "exclude"),
        (CHAT, chat(documents="text"), "documents", "valid list"),
    ],
)
def test_a_bad_value_is_named(gateway: Gateway, path: str, body: dict[str, object], param: str, words: str) -> None:
    check_error(httpx.post(gateway.url + path, json=body), status=400, param=param, code=None, words=words)


def test_prompt_logprobs_are_in_vllms_shape(client: openai.OpenAI, tokenizer: Tokenizer, world: World) -> None:
    ids = tokenizer.encode("ab").ids
    answer = client.completions.create(
        model=MODEL, prompt=["ab", "ba"], max_tokens=1, n=2, extra_body={"prompt_logprobs": 1}
    ).to_dict()
    for choice in answer["choices"][:2]:
        assert choice["prompt_logprobs"] == [
            None,
            {str(ids[1]): {"logprob": -0.5, "rank": 1, "decoded_token": "b"}},
        ]
    assert list(answer["choices"][2]["prompt_logprobs"][1]) == [str(ids[0])]
    assert world.worker.last.sampling.num_prompt_logprobs == 1
    talk = client.chat.completions.create(
        model=MODEL, messages=[USER], max_tokens=1, extra_body={"prompt_logprobs": 0, "return_token_ids": True}
    ).to_dict()
    assert talk["prompt_logprobs"][0] is None
    assert len(talk["prompt_logprobs"]) == len(talk["prompt_token_ids"])


def test_echo_and_prompt_logprobs_have_each_their_own_number(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt="abc", max_tokens=1, echo=True, logprobs=1, extra_body={"prompt_logprobs": 3}
    ).to_dict()["choices"][0]
    assert [len(top) for top in answer["logprobs"]["top_logprobs"][1:3]] == [1, 1]
    assert [len(entry) for entry in answer["prompt_logprobs"][1:]] == [3, 3]


def test_a_scored_prompt_is_not_looked_up_in_caches(client: openai.OpenAI, world: World) -> None:
    prompt, headers = "one two three " * 8, {"x-headway-slo-ttft-ms": "60000"}
    client.completions.create(model=MODEL, prompt=prompt, max_tokens=1, extra_headers=headers)
    client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=1, extra_headers=headers, extra_body={"prompt_logprobs": 1}
    )
    assert [bool(route.block_hashes) for route in world.router.routed] == [True, False]


def test_a_cache_salt_parts_what_router_and_worker_see(client: openai.OpenAI, world: World) -> None:
    for salt in (None, "a", "b", "a"):
        client.completions.create(
            model=MODEL,
            prompt="one two three " * 8,
            max_tokens=1,
            n=2,
            extra_headers={"x-headway-slo-ttft-ms": "60000"},
            extra_body={} if salt is None else {"cache_salt": salt},
        )
    hashes = [tuple(route.block_hashes) for route in world.router.routed]
    assert hashes[1] == hashes[3]
    assert len({chain[0] for chain in hashes}) == 3
    assert len({chain[-1] for chain in hashes}) == 3
    assert [submit.cache_salt for submit in world.worker.submitted] == ["", "", "a", "a", "b", "b", "a", "a"]


def test_token_ids_are_returned_where_asked_for(client: openai.OpenAI, tokenizer: Tokenizer, world: World) -> None:
    prompt, reply = tokenizer.encode("ab").ids, tokenizer.encode("one two").ids
    world.worker.reply = tuple(reply)
    wanted = [*reply, tokenizer.token_to_id(EOS)]
    body = {"return_token_ids": True}
    choice = client.completions.create(model=MODEL, prompt="ab", extra_body=body).to_dict()["choices"][0]
    assert (choice["prompt_token_ids"], choice["token_ids"], choice["text"]) == (prompt, wanted, "one two")
    talk = client.chat.completions.create(model=MODEL, messages=[USER], extra_body=body).to_dict()
    assert talk["choices"][0]["token_ids"] == wanted
    assert tokenizer.decode(talk["prompt_token_ids"]) == "[user]Hi[assistant]"

    chunks = [
        chunk.to_dict() for chunk in client.completions.create(model=MODEL, prompt="ab", stream=True, extra_body=body)
    ]
    choices = [chunk["choices"][0] for chunk in chunks]
    assert [choice.get("prompt_token_ids") for choice in choices] == [prompt] + [None] * (len(choices) - 1)
    assert [token_id for choice in choices for token_id in choice["token_ids"]] == wanted
    assert "".join(choice["text"] for choice in choices) == "one two"
    chunks = [
        chunk.to_dict()
        for chunk in client.chat.completions.create(model=MODEL, messages=[USER], stream=True, extra_body=body)
    ]
    assert chunks[0]["prompt_token_ids"] == talk["prompt_token_ids"]
    assert all("prompt_token_ids" not in chunk for chunk in chunks[1:])
    assert [token_id for chunk in chunks for token_id in chunk["choices"][0].get("token_ids", [])] == wanted


def test_token_ids_of_a_called_tool_are_all_told(gateway: Gateway, tokenizer: Tokenizer, world: World) -> None:
    reply = tokenizer.encode('so: <tool_call>{"name": "f", "arguments": {"x": 1}}</tool_call>').ids
    world.worker.reply = tuple(reply)
    body = chat(
        tools=[{"type": "function", "function": {"name": "f"}}], stream=True, return_token_ids=True, max_tokens=200
    )
    told = [
        token_id
        for event in events(post(gateway, CHAT, body))
        for choice in event["choices"]
        for token_id in choice.get("token_ids", [])
    ]
    assert told == [*reply, tokenizer.token_to_id(EOS)]


def test_usage_is_in_every_event_where_asked_for(client: openai.OpenAI) -> None:
    options = {"include_usage": True, "continuous_usage_stats": True}
    chunks = list(
        client.completions.create(model=MODEL, prompt="ab", max_tokens=4, n=2, stream=True, stream_options=options)
    )
    for index in (0, 1):
        usages = [chunk.usage for chunk in chunks if chunk.choices and chunk.choices[0].index == index]
        assert [usage.completion_tokens for usage in usages] == [1, 2, 3, 4]
        assert {(usage.prompt_tokens, usage.total_tokens - usage.completion_tokens) for usage in usages} == {(2, 2)}
    assert chunks[-1].usage.completion_tokens == 8
    talk = list(
        client.chat.completions.create(model=MODEL, messages=[USER], max_tokens=3, stream=True, stream_options=options)
    )
    assert [chunk.usage.completion_tokens for chunk in talk] == [0, 1, 2, 3, 3, 3]
    silent = client.completions.create(
        model=MODEL, prompt="ab", max_tokens=2, stream=True, stream_options={"continuous_usage_stats": True}
    )
    assert [chunk.usage for chunk in silent] == [None, None]


@pytest.mark.parametrize("stream", [False, True])
def test_the_stop_string_is_in_the_text_where_asked_for(
    gateway: Gateway, tokenizer: Tokenizer, world: World, stream: bool
) -> None:
    world.worker.reply = tuple(tokenizer.encode("one two three").ids)

    def text(**fields: object) -> str:
        response = post(gateway, COMPLETIONS, completion(max_tokens=50, stream=stream, **fields))
        documents = events(response) if stream else [response.json()]
        return "".join(document["choices"][0]["text"] for document in documents)

    assert text(stop=[" two"]) == "one"
    assert text(stop=[" two"], include_stop_str_in_output=True) == "one two"
    assert text(include_stop_str_in_output=True) == "one two three"  # what ended it is a special token
    assert text(include_stop_str_in_output=True, skip_special_tokens=False) == f"one two three{EOS}"
    assert text(skip_special_tokens=False) == "one two three"


@pytest.mark.parametrize("model", [MODEL, PLAIN_MODEL])
def test_special_tokens_are_in_the_text_where_asked_for(client: openai.OpenAI, world: World, model: str) -> None:
    def text(**fields: object) -> str:
        return (
            client.completions.create(
                model=model, prompt=[5, 0, 2, 6], max_tokens=4, temperature=0, extra_body={"ignore_eos": True, **fields}
            )
            .choices[0]
            .text
        )

    vocabulary = Tokenizer.from_file(str(world.directory / model / "tokenizer.json"))
    for skip in (True, False):
        expected = vocabulary.decode([5, 0, 2, 6], skip_special_tokens=skip)
        assert text(skip_special_tokens=skip) == expected
    assert text() == text(skip_special_tokens=True)
    assert text() != text(skip_special_tokens=False)


def test_the_last_message_is_continued(client: openai.OpenAI, tokenizer: Tokenizer, world: World) -> None:
    def prompt(messages: list[dict[str, str]], **fields: object) -> str:
        client.chat.completions.create(model=MODEL, messages=messages, max_tokens=1, extra_body=fields)
        return tokenizer.decode(list(world.worker.last.prompt_token_ids), skip_special_tokens=False)

    messages = [USER, {"role": "assistant", "content": "The "}]
    marked = {"chat_template_kwargs": {"mark_turns": True}}
    assert prompt(messages, **marked) == f"[user]Hi{EOS}[assistant]The {EOS}[assistant]"
    assert prompt(messages, add_generation_prompt=False, **marked) == f"[user]Hi{EOS}[assistant]The {EOS}"
    for extra in ({}, {"add_generation_prompt": False}):
        assert prompt(messages, continue_final_message=True, **extra, **marked) == f"[user]Hi{EOS}[assistant]The "


@pytest.mark.parametrize("temperature", [1e-50, 1e-6, 0.0])
def test_the_lowest_temperatures_are_greedy(client: openai.OpenAI, world: World, temperature: float) -> None:
    client.completions.create(model=MODEL, prompt="ab", max_tokens=1, temperature=temperature)
    assert world.worker.last.sampling.temperature == 0
