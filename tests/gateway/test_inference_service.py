"""The gRPC inference service: the same requests as over HTTP."""

from collections.abc import Iterator
from typing import Any

import grpc
import pytest
from tokenizers import Tokenizer

from headway.core.errors import ErrorCode, HeadwayError, InvalidArgumentError, NotFoundError, ResourceExhaustedError
from headway.rpc.status import error_from_rpc
from headway.v1 import common_pb2, inference_pb2, inference_pb2_grpc
from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, Gateway, World, wait_for

PROMPT = "The quick brown fox. "


@pytest.fixture
def stub(gateway: Gateway) -> Iterator[inference_pb2_grpc.InferenceServiceStub]:
    with grpc.insecure_channel(gateway.grpc_endpoint) as channel:
        yield inference_pb2_grpc.InferenceServiceStub(channel)


def request(**fields: Any) -> inference_pb2.GenerateRequest:
    options = fields.pop("options", {})
    if not {"text", "token_ids", "chat"} & fields.keys():
        fields["text"] = PROMPT
    return inference_pb2.GenerateRequest(
        model=fields.pop("model", MODEL),
        options=inference_pb2.GenerateOptions(**{"temperature": 0.0, **options}),
        **fields,
    )


def fault(stub: inference_pb2_grpc.InferenceServiceStub, asked: inference_pb2.GenerateRequest) -> HeadwayError:
    with pytest.raises(grpc.RpcError) as caught:
        list(stub.Generate(asked))
    return error_from_rpc(caught.value)


def test_text_streams_and_ends_with_usage(stub: inference_pb2_grpc.InferenceServiceStub, tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode(PROMPT).ids
    *deltas, last = stub.Generate(request(options={"max_tokens": len(token_ids), "logprobs": 1}, request_id="mine"))
    assert "".join(delta.text for delta in deltas) == PROMPT
    assert [token_id for delta in deltas for token_id in delta.token_ids] == token_ids
    assert all(len(delta.logprobs) == 1 and len(delta.logprobs[0].top_token_ids) == 1 for delta in deltas)
    assert deltas[-1].finish_reason == common_pb2.FINISH_REASON_LENGTH
    assert {delta.request_id for delta in deltas} == {"mine"}
    assert last.usage.prompt_tokens == last.usage.completion_tokens == len(token_ids)


def test_defaults_are_those_of_the_openai_api(stub: inference_pb2_grpc.InferenceServiceStub, world: World) -> None:
    list(stub.Generate(inference_pb2.GenerateRequest(model=MODEL, text=PROMPT)))
    sampling = world.worker.last.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p) == (16, 1.0, 1.0)


def test_chat_and_token_ids_are_prompts_too(
    stub: inference_pb2_grpc.InferenceServiceStub, world: World, tokenizer: Tokenizer
) -> None:
    messages = [inference_pb2.ChatMessage(role="user", content="Hi")]
    list(stub.Generate(request(chat=inference_pb2.ChatMessages(messages=messages), options={"max_tokens": 1})))
    assert tokenizer.decode(list(world.worker.last.prompt_token_ids)) == "[user]Hi[assistant]"
    list(stub.Generate(request(token_ids=inference_pb2.TokenIds(ids=[9, 8]), options={"max_tokens": 1})))
    assert list(world.worker.last.prompt_token_ids) == [9, 8]


def test_n_stop_and_slo_are_heeded(stub: inference_pb2_grpc.InferenceServiceStub, world: World) -> None:
    slo = common_pb2.Slo(ttft_s=3, e2e_s=9)
    asked = request(options={"n": 2, "stop": ["brown"], "max_tokens": 99}, slo=slo, priority=4)
    texts = {0: "", 1: ""}
    for delta in stub.Generate(asked):
        texts[delta.index] += delta.text
    assert texts == {0: "The quick ", 1: "The quick "}
    routed = world.router.routed[-1]
    assert (routed.slo.ttft_s, routed.slo.e2e_s, routed.priority) == (3, 9, 4)


@pytest.mark.parametrize(
    ("fields", "kind", "field"),
    [
        ({"model": "nope"}, NotFoundError, "model"),
        ({"options": {"temperature": 3.0}}, InvalidArgumentError, "temperature"),
        ({"options": {"logprobs": 99}}, InvalidArgumentError, "logprobs"),
        ({"token_ids": inference_pb2.TokenIds(ids=[9999])}, InvalidArgumentError, "token_ids[0]"),
        ({"token_ids": inference_pb2.TokenIds(ids=[1] * 600)}, InvalidArgumentError, "token_ids"),
        ({"chat": inference_pb2.ChatMessages()}, InvalidArgumentError, "messages"),
        ({"slo": common_pb2.Slo(ttft_s=-1)}, InvalidArgumentError, "slo.ttft_s"),
        ({"request_id": "a b"}, InvalidArgumentError, "x-request-id"),
    ],
)
def test_bad_requests_carry_the_whole_error(
    stub: inference_pb2_grpc.InferenceServiceStub, fields: dict[str, Any], kind: type[HeadwayError], field: str
) -> None:
    error = fault(stub, request(**fields))
    assert isinstance(error, kind)
    assert error.field == field


def test_a_request_without_a_prompt_is_refused(stub: inference_pb2_grpc.InferenceServiceStub) -> None:
    assert fault(stub, inference_pb2.GenerateRequest(model=MODEL)).field == "prompt"


def test_a_refusal_keeps_its_delay(stub: inference_pb2_grpc.InferenceServiceStub, world: World) -> None:
    world.router.fault = ResourceExhaustedError("Too busy.", retry_after_s=1.5)
    error = fault(stub, request())
    assert error.code is ErrorCode.RESOURCE_EXHAUSTED
    assert error.retry_after_s == 1.5


def test_a_cancelled_call_cancels_its_sequences(stub: inference_pb2_grpc.InferenceServiceStub, world: World) -> None:
    world.worker.step_s = 0.02
    call = stub.Generate(request(options={"max_tokens": 400, "n": 2}))
    next(call)
    call.cancel()
    wait_for(lambda: len(world.worker.cancelled) == 2)
    wait_for(lambda: [release.outcome for release in world.router.released] == ["cancelled"])


def test_models_and_status_are_told(stub: inference_pb2_grpc.InferenceServiceStub) -> None:
    models = stub.ListModels(inference_pb2.ListModelsRequest()).models
    assert [model.name for model in models] == [MODEL, PLAIN_MODEL]
    assert models[0].max_model_len == MAX_MODEL_LEN
    assert models[0].num_replicas == 1
    assert models[0].spec.architecture == "LlamaForCausalLM"
    status = stub.GetClusterStatus(inference_pb2.GetClusterStatusRequest())
    assert status.plan.plan_id == "plan-1"
    assert status.HasField("fleet")
    assert not status.HasField("controller")  # none runs here


@pytest.mark.parametrize("value", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize(
    "name",
    ["temperature", "top_p", "min_p", "presence_penalty", "frequency_penalty", "repetition_penalty", "length_penalty"],
)
def test_what_is_no_number_is_refused_by_name(
    stub: inference_pb2_grpc.InferenceServiceStub, name: str, value: float
) -> None:
    error = fault(stub, request(options={name: value}))
    assert (error.code, error.field) == (ErrorCode.INVALID_ARGUMENT, name)


def test_prompts_are_scored_and_caches_parted(
    stub: inference_pb2_grpc.InferenceServiceStub, world: World, tokenizer: Tokenizer
) -> None:
    ids = tokenizer.encode("abc").ids
    first, *rest = stub.Generate(
        request(text="abc", options={"prompt_logprobs": 2, "cache_salt": "mine", "max_tokens": 2})
    )
    assert [(entry.token_id, len(entry.top_token_ids)) for entry in first.prompt_logprobs] == [(i, 2) for i in ids[1:]]
    assert not any(delta.prompt_logprobs for delta in rest)
    assert world.worker.last.cache_salt == "mine"


def test_what_ends_the_text_is_in_it_where_asked_for(
    stub: inference_pb2_grpc.InferenceServiceStub, world: World, tokenizer: Tokenizer
) -> None:
    world.worker.reply = tuple(tokenizer.encode("one two").ids)
    options = {"include_stop_str_in_output": True, "max_tokens": 9}
    shown = stub.Generate(request(options={**options, "skip_special_tokens": False}))
    assert "".join(delta.text for delta in shown) == "one two</s>"
    assert "".join(delta.text for delta in stub.Generate(request(options={**options, "stop": ["tw"]}))) == "one tw"
