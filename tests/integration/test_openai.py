"""The official openai client against a whole stack."""

import json
from pathlib import Path

import httpx
import openai
import pytest

from tests.checkpoints import make_tokenizer
from tests.greedy import greedy
from tests.integration.stack import RunningStack

PROMPT = "the headway between two trains"


@pytest.fixture(scope="module")
def client(stack: RunningStack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{stack.url}/v1", api_key="none", max_retries=0)


def test_greedy_text_equals_transformers(client: openai.OpenAI, checkpoint: Path) -> None:
    tokenizer = make_tokenizer()
    expected = tokenizer.decode(greedy(checkpoint, tokenizer.encode(PROMPT).ids, 48))
    answer = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=48, temperature=0, extra_body={"ignore_eos": True}
    )
    assert answer.choices[0].text == expected
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 48
    stream = client.completions.create(
        model="tiny", prompt=PROMPT, max_tokens=48, temperature=0, stream=True, extra_body={"ignore_eos": True}
    )
    assert "".join(chunk.choices[0].text for chunk in stream) == expected


def test_chat_streams_what_it_answers_at_once(client: openai.OpenAI) -> None:
    messages = [{"role": "user", "content": "What is headway?"}]
    whole = client.chat.completions.create(
        model="tiny", messages=messages, max_completion_tokens=24, seed=3, temperature=0.8
    )
    stream = client.chat.completions.create(
        model="tiny",
        messages=messages,
        max_completion_tokens=24,
        seed=3,
        temperature=0.8,
        stream=True,
        stream_options={"include_usage": True},
    )
    text, usage = "", None
    for chunk in stream:
        usage = chunk.usage or usage
        text += "".join(choice.delta.content or "" for choice in chunk.choices)
    assert text == whole.choices[0].message.content
    assert usage is not None
    assert whole.usage is not None
    assert usage.completion_tokens == whole.usage.completion_tokens


def test_n_seeded_samples_are_repeatable_and_differ(client: openai.OpenAI) -> None:
    def ask() -> list[str]:
        answer = client.completions.create(model="tiny", prompt=PROMPT, n=3, seed=11, max_tokens=12, temperature=1)
        return [choice.text for choice in sorted(answer.choices, key=lambda choice: choice.index)]

    first = ask()
    assert first == ask()
    assert len(set(first)) == 3


def test_logprobs_are_those_of_the_sampled_tokens(client: openai.OpenAI) -> None:
    answer = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=5, temperature=0, logprobs=2, echo=True)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens is not None
    assert logprobs.token_logprobs is not None
    assert logprobs.token_logprobs[0] is None  # nothing precedes the first prompt token
    assert all(value <= 0 for value in logprobs.token_logprobs[1:])
    assert answer.usage is not None
    assert len(logprobs.tokens) == answer.usage.total_tokens
    assert "".join(logprobs.tokens).startswith(PROMPT)


def test_a_stop_string_ends_the_text_before_it(client: openai.OpenAI) -> None:
    whole = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=32, temperature=0).choices[0].text
    stop = whole[len(whole) // 2 :][:3]
    cut = client.completions.create(model="tiny", prompt=PROMPT, max_tokens=32, temperature=0, stop=[stop]).choices[0]
    assert cut.text == whole[: whole.index(stop)]
    assert cut.finish_reason == "stop"


@pytest.mark.parametrize(
    ("body", "status", "param"),
    [
        ({"model": "nope", "prompt": "x"}, 404, "model"),
        ({"model": "tiny", "prompt": "x", "max_tokens": "many"}, 400, "max_tokens"),
        ({"model": "tiny", "prompt": "x", "temperature": -1}, 400, "temperature"),
        ({"model": "tiny", "prompt": [5] * 3000, "max_tokens": 4}, 400, "prompt"),
        ({"model": "tiny", "prompt": [99999999]}, 400, "prompt"),
    ],
)
def test_bad_requests_get_the_openai_error_body(
    stack: RunningStack, body: dict[str, object], status: int, param: str
) -> None:
    response = httpx.post(f"{stack.url}/v1/completions", json=body)
    assert response.status_code == status, response.text
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert param in (error["param"] or "")
    assert error["message"]


def test_malformed_json_and_too_large_bodies_are_refused(stack: RunningStack) -> None:
    headers = {"content-type": "application/json"}
    broken = httpx.post(f"{stack.url}/v1/completions", content=b'{"model": ', headers=headers)
    assert broken.status_code == 400
    assert broken.json()["error"]["message"]
    huge = json.dumps({"model": "tiny", "prompt": "x" * (9 * 1024 * 1024)}).encode()
    assert httpx.post(f"{stack.url}/v1/completions", content=huge, headers=headers).status_code == 413


def test_an_slo_that_cannot_be_met_is_refused_with_a_hint(stack: RunningStack) -> None:
    body = {"model": "tiny", "prompt": "x", "max_tokens": 4}
    response = httpx.post(f"{stack.url}/v1/completions", json=body, headers={"x-headway-slo-ttft-ms": "0.001"})
    assert response.status_code == 429, response.text
    assert int(response.headers["retry-after"]) >= 1
    assert "first token" in response.json()["error"]["message"]
