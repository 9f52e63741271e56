"""POST /tokenize and /detokenize."""

from typing import Any

import httpx
import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, Gateway

TEXT = "one two, three \N{OWL}"
TOOL = {"type": "function", "function": {"name": "weather"}}


def post(gateway: Gateway, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(gateway.url + path, json={"model": MODEL, **body})


def test_a_prompt_has_the_tokens_of_its_tokenizer(gateway: Gateway, tokenizer: Tokenizer) -> None:
    encoding = tokenizer.encode(TEXT)
    whole = {"count": len(encoding.ids), "max_model_len": MAX_MODEL_LEN, "tokens": encoding.ids}
    assert post(gateway, "/tokenize", {"prompt": TEXT}).json() == {**whole, "token_strs": None}
    named = post(gateway, "/tokenize", {"prompt": TEXT, "return_token_strs": True}).json()
    assert named == {**whole, "token_strs": encoding.tokens}
    bare = post(gateway, "/tokenize", {"prompt": TEXT, "add_special_tokens": False}).json()
    assert bare["tokens"] == tokenizer.encode(TEXT, add_special_tokens=False).ids
    assert post(gateway, "/tokenize", {"prompt": "", "add_special_tokens": False}).json()["count"] == 0


def test_a_chat_has_the_tokens_that_are_computed(gateway: Gateway, client: openai.OpenAI) -> None:
    chat: dict[str, Any] = {"messages": [{"role": "user", "content": TEXT}], "tools": [TOOL]}
    answer = client.chat.completions.create(
        model=MODEL, messages=chat["messages"], tools=chat["tools"], max_tokens=1, extra_body={"return_token_ids": True}
    )
    found = post(gateway, "/tokenize", chat).json()
    assert found["tokens"] == answer.model_dump()["prompt_token_ids"]
    without = post(gateway, "/tokenize", {**chat, "add_generation_prompt": False}).json()
    assert without["tokens"] == found["tokens"][: without["count"]] != found["tokens"]


@pytest.mark.parametrize(
    "said",
    [{"content": None, "refusal": "No."}, {"content": [{"type": "refusal", "refusal": "No."}]}, {"refusal": "No."}],
)
def test_what_refused_is_what_the_model_said(gateway: Gateway, said: dict[str, Any]) -> None:
    """As clients send back what OpenAI's models answered."""
    plain = {"messages": [{"role": "assistant", "content": "No."}]}
    refused = {"messages": [{"role": "assistant", **said}]}
    assert post(gateway, "/tokenize", refused).json() == post(gateway, "/tokenize", plain).json()


def test_longer_than_the_model_takes_is_still_counted(gateway: Gateway) -> None:
    assert post(gateway, "/tokenize", {"prompt": "one " * 6000}).json()["count"] > MAX_MODEL_LEN


@pytest.mark.parametrize("model", [MODEL, PLAIN_MODEL])
def test_tokens_are_text_again(gateway: Gateway, model: str) -> None:
    tokens = post(gateway, "/tokenize", {"model": model, "prompt": TEXT, "add_special_tokens": False}).json()["tokens"]
    assert post(gateway, "/detokenize", {"model": model, "tokens": tokens}).json() == {"prompt": TEXT}


def test_special_tokens_have_their_names(gateway: Gateway, tokenizer: Tokenizer) -> None:
    tokens = tokenizer.encode(TEXT).ids
    assert post(gateway, "/detokenize", {"tokens": tokens}).json() == {
        "prompt": tokenizer.decode(tokens, skip_special_tokens=False)
    }


@pytest.mark.parametrize(
    ("path", "body", "field"),
    [
        ("/tokenize", {}, "prompt"),
        ("/tokenize", {"prompt": "a", "messages": []}, "prompt"),
        ("/tokenize", {"prompt": ["a"]}, "prompt"),
        ("/tokenize", {"messages": []}, "messages"),
        ("/tokenize", {"messages": [{"role": "user"}], "continue_final_message": True}, "continue_final_message"),
        ("/tokenize", {"model": PLAIN_MODEL, "messages": [{"role": "user"}]}, "messages"),
        ("/detokenize", {}, "tokens"),
        ("/detokenize", {"tokens": [1, -1]}, "tokens[1]"),
        ("/detokenize", {"tokens": [1 << 40]}, "tokens[0]"),
        ("/detokenize", {"tokens": "a"}, "tokens"),
    ],
)
def test_what_is_wrong_is_refused_by_its_field(gateway: Gateway, path: str, body: dict[str, Any], field: str) -> None:
    answer = post(gateway, path, body)
    assert (answer.status_code, answer.json()["error"]["param"]) == (400, field)


def test_a_key_is_asked_for(guarded: Gateway) -> None:
    assert post(guarded, "/tokenize", {"prompt": "a"}).status_code == 401
    assert post(guarded, "/detokenize", {"tokens": [1]}).status_code == 401
