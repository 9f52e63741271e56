"""Constraints on the output, from a client's fields to what the worker is told."""

import json
from typing import Any

import grpc
import openai
import pytest
from tokenizers import Tokenizer

from headway.client import Client
from headway.core.errors import InvalidArgumentError
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.world import MODEL, PLAIN_MODEL, Gateway, World

SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
LARK = 'start: "a"+'
MESSAGES: list[Any] = [{"role": "user", "content": "Hi"}]


@pytest.mark.parametrize(
    ("fields", "kind", "text"),
    [
        ({"response_format": {"type": "json_object"}}, "json_object", ""),
        ({"structured_outputs": {"json": SCHEMA}}, "json_schema", json.dumps(SCHEMA)),
        ({"structured_outputs": {"json": json.dumps(SCHEMA)}}, "json_schema", json.dumps(SCHEMA)),
        ({"structured_outputs": {"json_object": True}}, "json_object", ""),
        ({"structured_outputs": {"regex": r"\\d+"}}, "regex", r"\\d+"),
        ({"structured_outputs": {"choice": ["a", "ü"]}}, "choice", '["a", "\\u00fc"]'),
        ({"structured_outputs": {"grammar": LARK}}, "grammar", LARK),
        ({"guided_json": SCHEMA}, "json_schema", json.dumps(SCHEMA)),
        ({"guided_regex": "a|b"}, "regex", "a|b"),
        ({"guided_choice": ["a"]}, "choice", '["a"]'),
        ({"guided_grammar": LARK}, "grammar", LARK),
    ],
)
def test_every_kind_of_guide_reaches_the_worker(
    client: openai.OpenAI, world: World, fields: dict[str, Any], kind: str, text: str
) -> None:
    client.completions.create(model=MODEL, prompt="x", max_tokens=1, extra_body=fields)
    guide = world.worker.last.sampling.guide
    assert (guide.kind, guide.text) == (kind, text)


def test_a_schema_is_a_response_format(client: openai.OpenAI, world: World) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=1,
        response_format={"type": "json_schema", "json_schema": {"name": "answer", "strict": True, "schema": SCHEMA}},
    )
    guide = world.worker.last.sampling.guide
    assert (guide.kind, json.loads(guide.text)) == ("json_schema", SCHEMA)


def test_text_is_no_guide(client: openai.OpenAI, world: World) -> None:
    client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=1, response_format={"type": "text"})
    assert not world.worker.last.sampling.HasField("guide")


def test_biases_reach_the_worker(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt="x", max_tokens=1, logit_bias={"5": -100, "7": 1})
    biases = [(entry.token_id, entry.bias) for entry in world.worker.last.sampling.logit_bias]
    assert biases == [(5, -100.0), (7, 1.0)]


@pytest.mark.parametrize("model", [MODEL, PLAIN_MODEL])
def test_bad_words_become_tokens_with_and_without_a_space(
    client: openai.OpenAI, world: World, model: str, tokenizer: Tokenizer
) -> None:
    client.completions.create(model=model, prompt="x", max_tokens=1, extra_body={"bad_words": ["fox", " dog"]})
    words = [tuple(word.token_ids) for word in world.worker.last.sampling.bad_token_ids]
    assert len(words) == len(set(words))
    if model == MODEL:
        spellings = ("fox", " fox", " dog")
        assert words == [tuple(tokenizer.encode(spelling).ids) for spelling in spellings]


def test_the_client_guides_too(gateway: Gateway, world: World) -> None:
    asked = [{"json_schema": SCHEMA}, {"regex": "a+"}, {"choice": ["a", "b"]}, {"grammar": LARK}]
    with Client(gateway.grpc_endpoint) as client:
        for fields in asked:
            client.generate_text("x", model=MODEL, max_tokens=1, **fields)  # type: ignore[arg-type]
        client.generate_text("x", model=MODEL, max_tokens=1, logit_bias={5: 2.5}, bad_words=["fox"])
        with pytest.raises(InvalidArgumentError, match="exclude each other"):
            client.generate_text("x", model=MODEL, regex="a", grammar=LARK)
        with pytest.raises(InvalidArgumentError, match="unclosed group") as caught:
            client.generate_text("x", model=MODEL, regex="(a")
    assert caught.value.field == "guide"
    kinds = [submit.sampling.guide.kind for submit in world.worker.submitted]
    assert kinds == ["json_schema", "regex", "choice", "grammar", ""]
    sampling = world.worker.last.sampling
    assert [(entry.token_id, entry.bias) for entry in sampling.logit_bias] == [(5, 2.5)]
    assert len(sampling.bad_token_ids) == 2


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("xml", ""),
        ("choice", "5"),
        ("choice", "{"),
        ("json_schema", "{"),
        ("grammar", "root ::= (a"),
        ("grammar", "a ::= b"),
    ],
)
def test_a_guide_that_makes_no_sense_is_refused(gateway: Gateway, world: World, kind: str, text: str) -> None:
    options = inference_pb2.GenerateOptions(max_tokens=1)
    options.guide.kind, options.guide.text = kind, text
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel, pytest.raises(grpc.RpcError) as caught:
        list(
            inference_pb2_grpc.InferenceServiceStub(channel).Generate(
                inference_pb2.GenerateRequest(model=MODEL, text="x", options=options)
            )
        )
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT  # type: ignore[attr-defined]
