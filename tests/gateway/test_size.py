"""Requests for far too much are refused by their number, before anything is done for them one by one."""

import threading
from datetime import datetime
from pathlib import Path
from typing import Any

import grpc
import httpx
import orjson
import pytest

from headway.core.slo import Slo
from headway.gateway.errors import ContextLengthError
from headway.gateway.model import ServedModel
from headway.gateway.prompt_tokenizer import PromptTokenizer
from headway.gateway.text.template import ChatTemplate
from headway.gateway.text.tokenizer import Tokenizer
from headway.gateway.threads import Threads
from headway.v1 import inference_pb2, inference_pb2_grpc
from tests.gateway.test_guard import KEY
from tests.gateway.vocabularies import byte_level
from tests.gateway.world import MODEL, Gateway, World, make_plan, wait_for

NUM_TEXTS = 2_000_000


@pytest.mark.parametrize(
    ("path", "fields", "param", "words"),
    [
        ("completions", {"prompt": ["a"] * NUM_TEXTS}, "prompt", "2000000 sequences"),
        ("completions", {"prompt": [[1]] * 100_000}, "prompt", "100000 sequences"),
        ("completions", {"prompt": ["a"] * 200, "n": 2}, "prompt", "400 sequences"),
        ("embeddings", {"input": ["a"] * NUM_TEXTS}, "input", "2000000 entries"),
        ("classify", {"input": ["a"] * NUM_TEXTS}, "input", "2000000 entries"),
        ("rerank", {"query": "q", "documents": ["a"] * NUM_TEXTS}, "documents", "2000000 entries"),
        ("score", {"text_1": "q", "text_2": ["a"] * NUM_TEXTS}, "text_2", "2000000 entries"),
    ],
)
def test_millions_of_inputs_are_refused_while_streams_go_on(
    guarded: Gateway, world: World, path: str, fields: dict[str, Any], param: str, words: str
) -> None:
    world.worker.step_s = 0.06  # so that it outlasts the refusal
    running = {"model": MODEL, "prompt": "ab", "max_tokens": 400, "stream": True}
    with httpx.stream("POST", f"{guarded.url}/v1/completions", json=running, headers=KEY) as stream:
        lines = stream.iter_lines()
        next(lines)
        refused = httpx.post(f"{guarded.url}/v1/{path}", json={"model": MODEL, **fields}, headers=KEY, timeout=20)
        assert refused.status_code == 400
        error = refused.json()["error"]
        assert error["param"] == param
        assert words in error["message"]
        next(lines)
    assert len(world.router.routed) == 1
    wait_for(lambda: len(world.worker.cancelled) == 1)


DEEP = "[" * 1000 + "]" * 1000
OBJECTS = '{"a":' * 1000 + "1" + "}" * 1000


@pytest.mark.parametrize(
    ("path", "fields", "param", "words"),
    [
        ("completions", {"prompt": [1] * 1_100_000}, "prompt", "1100000 token ids"),
        ("completions", {"prompt": [[1] * 600_000] * 2}, "prompt", "1200000 token ids"),
        ("completions", {"prompt": "a", "logit_bias": {str(i): 1 for i in range(2000)}}, "logit_bias", "2000 entries"),
        ("completions", {"prompt": "a", "logit_bias": {"1" * 400: 1}}, "logit_bias", "token ids"),
        ("completions", {"prompt": "a", "logit_bias": {"1" * 5000: 1}}, "logit_bias", "token ids"),
        ("completions", {"prompt": "a", "bad_words": ["a"] * 100_000}, "bad_words", "100000 entries"),
        ("completions", {"prompt": "a", "guided_choice": ["a"] * 100_000}, "guided_choice", "100000 entries"),
        ("completions", {"prompt": "a", "structured_outputs": {"choice": ["a"] * 100_000}}, None, "100000 entries"),
        ("completions", {"prompt": "a", "guided_json": orjson.Fragment(OBJECTS)}, None, "nested deeper than 128"),
        ("completions", {"prompt": "a", "guided_json": OBJECTS}, "guided_json", "recursion"),
        ("chat/completions", {"messages": [{"role": "user"}] * 100_000}, "messages", "100000 entries"),
        ("chat/completions", {"messages": [], "tools": [{}] * 80_000}, "tools", "80000 entries"),
        (
            "chat/completions",
            {"messages": [{"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": DEEP}}]}]},
            None,
            "",
        ),
    ],
)
def test_what_is_too_large_or_too_deep_is_the_clients_fault(
    guarded: Gateway, path: str, fields: dict[str, Any], param: str | None, words: str
) -> None:
    body = orjson.dumps({"model": MODEL, **fields})
    refused = httpx.post(f"{guarded.url}/v1/{path}", content=body, headers=KEY, timeout=20)
    assert refused.status_code == 400, refused.text
    error = refused.json()["error"]
    assert param in {error["param"], None}
    assert words in error["message"]


def test_grpc_counts_inputs_first(gateway: Gateway) -> None:
    inputs = [inference_pb2.InferInput(text="a")] * 2049
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel:
        stub = inference_pb2_grpc.InferenceServiceStub(channel)
        with pytest.raises(grpc.RpcError) as caught:
            stub.Infer(inference_pb2.InferRequest(model=MODEL, inputs=inputs))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "2049 entries" in caught.value.details()


async def test_long_prompts_are_made_beside_the_event_loop_and_short_ones_in_it(tmp_path: Path) -> None:
    here, seen = threading.get_ident(), []

    def now() -> datetime:
        seen.append(threading.get_ident())
        return datetime(1999, 1, 2)  # noqa: DTZ001

    template = ChatTemplate("{{ strftime_now('%Y') }}{% for m in messages %}{{ m.content }}{% endfor %}", now=now)
    model = make_model(tmp_path, template, max_model_len=4096)
    encoder = PromptTokenizer(Threads())
    short = await encoder.chat(model, [{"role": "user", "content": "quick"}])
    assert short.text == "1999quick"
    assert seen == [here]
    await encoder.chat(model, [{"role": "user", "content": "quick" * 1000}])
    await encoder.chat(model, [{"role": "user", "content": ""}] * 1000)
    assert here not in seen[1:]
    one, two = await encoder.prompts(model, ["quick " * 1000, [5, 6]], field="prompt")
    assert (one.field, two.field) == ("prompt[0]", "prompt[1]")
    assert one.token_ids == tuple(byte_level().encode("quick " * 1000).ids)
    assert two.token_ids == (5, 6)


async def test_a_text_that_is_far_too_long_is_refused_by_its_beginning(tmp_path: Path) -> None:
    """It would take seconds to tokenise. Where its tokens are only to be counted, it may be longer."""
    encoder, model = PromptTokenizer(Threads()), make_model(tmp_path, ChatTemplate("{{ messages[0].content }}"))
    endless = "quick " * 1_000_000
    with pytest.raises(ContextLengthError, match="prompt has more than twice as many"):
        await encoder.prompts(model, ["a", endless], field="prompt")
    with pytest.raises(ContextLengthError, match="messages has more than twice as many"):
        await encoder.chat(model, [{"role": "user", "content": endless}])
    (prompt,) = await encoder.prompts(model, ["quick " * 1000], field="text", is_to_fit=False)
    assert len(prompt.token_ids) > 2 * model.max_model_len


def make_model(directory: Path, template: ChatTemplate | None = None, *, max_model_len: int = 64) -> ServedModel:
    return ServedModel(
        name=MODEL,
        spec=make_plan(directory).models[0].spec,
        tokenizer=Tokenizer(byte_level()),
        template=template,
        max_model_len=max_model_len,
        num_replicas=1,
        block_size=16,
        slo=Slo(),
        created_at_s=0.0,
        fingerprint="",
    )
