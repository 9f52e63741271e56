"""What a client sends: bodies and messages of any kind are answered or refused, and nothing else happens."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.openai.body import parse_json
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.infer_schema import ClassifyRequest, EmbeddingRequest, RerankRequest
from headway.gateway.openai.response_schema import ResponseRequest
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, read_request
from headway.gateway.openai.size import check_depth, check_size
from headway.gateway.text.template import ChatTemplate
from headway.router.servicer import _release_from_pb, _request_from_pb
from headway.rpc.convert import group_from_pb
from headway.rpc.convert.infer import infer_from_pb
from headway.v1 import router_pb2, worker_pb2
from tests.engine.conftest import Bench
from tests.fuzz.cases import answered, fuzzing, garbled, messages, mutated, text_of
from tests.gateway.world import CHAT_TEMPLATE

COMPLETION: dict[str, Any] = {
    "model": "tiny",
    "prompt": ["one", "two"],
    "max_tokens": 5,
    "temperature": 0.7,
    "top_p": 0.9,
    "n": 2,
    "stop": ["end", "\n"],
    "logit_bias": {"17": 1.5, "18": -100},
    "logprobs": 3,
    "seed": 4,
    "stream": True,
    "stream_options": {"include_usage": True},
    "bad_words": ["no"],
    "structured_outputs": {"regex": "a+b"},
    "guided_choice": ["yes", "no"],
    "slo_ms": 100,
    "priority": 3,
}
CHAT: dict[str, Any] = {
    "model": "tiny",
    "messages": [
        {"role": "system", "content": "Be short."},
        {"role": "user", "content": [{"type": "text", "text": "Weather?"}]},
        {
            "role": "assistant",
            "content": None,
            "tool_calls": [
                {"id": "1", "type": "function", "function": {"name": "weather", "arguments": '{"place": "Bern"}'}}
            ],
        },
        {"role": "tool", "tool_call_id": "1", "content": "rain"},
    ],
    "tools": [
        {
            "type": "function",
            "function": {
                "name": "weather",
                "parameters": {"type": "object", "properties": {"place": {"type": "string"}}, "required": ["place"]},
            },
        }
    ],
    "tool_choice": {"type": "function", "function": {"name": "weather"}},
    "response_format": {"type": "json_schema", "json_schema": {"name": "a", "schema": {"type": "object"}}},
    "chat_template_kwargs": {"enable_thinking": False},
    "max_completion_tokens": 5,
    "logprobs": True,
    "top_logprobs": 2,
}
RESPONSE: dict[str, Any] = {
    "model": "tiny",
    "instructions": "Be short.",
    "input": [
        {"role": "user", "content": [{"type": "input_text", "text": "Weather?"}]},
        {"type": "reasoning", "id": "rs_1", "summary": [], "content": [{"type": "reasoning_text", "text": "Hm."}]},
        {"type": "function_call", "call_id": "1", "name": "weather", "arguments": '{"place": "Bern"}'},
        {"type": "function_call_output", "call_id": "1", "output": "rain"},
    ],
    "tools": [{"type": "function", "name": "weather", "parameters": {"type": "object", "properties": {}}}],
    "tool_choice": {"type": "function", "name": "weather"},
    "text": {"format": {"type": "json_schema", "name": "a", "schema": {"type": "object"}}},
    "reasoning": {"effort": "low"},
    "include": ["message.output_text.logprobs"],
    "top_logprobs": 2,
    "max_output_tokens": 5,
    "store": False,
}
INPUTS: dict[type[Any], dict[str, Any]] = {
    EmbeddingRequest: {"model": "e", "input": ["a", [1, 2]], "dimensions": 4, "encoding_format": "base64"},
    ClassifyRequest: {"model": "e", "input": ["a", "b"]},
    RerankRequest: {"model": "e", "query": "a", "documents": ["b", {"text": "c"}], "top_n": 1},
}
DEFAULTS = SamplingDefaults()


def read(kind: type[Any], content: bytes) -> Any:
    body = parse_json(content)
    check_depth(body, content)
    check_size(body, max_sequences=256)
    return read_request(kind, body, ignored=IgnoredFields(is_strict=False))


def read_generation(kind: type[Any], content: bytes) -> None:
    request = read(kind, content)
    request.options(DEFAULTS).check(vocab_size=400)
    assert request.parts is not None
    if isinstance(request, (ChatRequest, ResponseRequest)):
        assert request.toolbox is None or request.tools
        ChatTemplate(CHAT_TEMPLATE).render(request.chat_messages(), options=request.template_variables)


@fuzzing
@given(body=mutated(COMPLETION))
def test_completions(body: Any) -> None:
    answered(lambda: read_generation(CompletionRequest, text_of(body).encode()))


@fuzzing
@given(body=mutated(CHAT))
def test_chats(body: Any) -> None:
    answered(lambda: read_generation(ChatRequest, text_of(body).encode()))


@fuzzing
@given(body=mutated(RESPONSE))
def test_responses(body: Any) -> None:
    answered(lambda: read_generation(ResponseRequest, text_of(body).encode()))


@pytest.mark.parametrize("kind", INPUTS, ids=lambda kind: kind.__name__)
@fuzzing
@given(data=st.data())
def test_inputs_of_encoders(kind: type[Any], data: st.DataObject) -> None:
    body = data.draw(mutated(INPUTS[kind]))
    answered(lambda: read(kind, text_of(body).encode()))


@fuzzing
@given(content=garbled(text_of(CHAT).encode()))
def test_bytes_that_are_hardly_json(content: bytes) -> None:
    answered(lambda: read_generation(ChatRequest, content))


PIECES = ["{{ ", " }}", "{% if ", " %}", "{% endif %}", "messages", "[0]", ".content", "|upper", "raise_exception('a')"]
PIECES += ["''.__class__", ".__mro__", "namespace(a=1)", "|tojson", "{% set a = 1 %}", "{# ", " #}", "1/0", "~", "()"]


@fuzzing
@given(source=st.lists(st.sampled_from(PIECES), max_size=8).map("".join))
def test_templates_of_a_model_directory(source: str) -> None:
    def render() -> None:
        text = ChatTemplate(source).render([{"role": "user", "content": "a"}])
        assert "object at" not in text

    answered(render)


@fuzzing
@given(route=messages(router_pb2.Route), release=messages(router_pb2.Release))
def test_messages_to_the_router(route: router_pb2.Route, release: router_pb2.Release) -> None:
    answered(lambda: _request_from_pb(route))
    answered(lambda: _release_from_pb(release))


@fuzzing
@given(requests=st.lists(messages(worker_pb2.SubmitGroup), min_size=1, max_size=3))
def test_groups_at_an_engine(requests: list[worker_pb2.SubmitGroup]) -> None:
    """Whatever comes beside it, a plain request gets what it would get alone."""
    bench = Bench(max_num_seqs=4, vocab_size=400)
    for message in requests:
        if not message.sequences:
            continue  # the servicer passes such over
        answered(lambda message=message: bench.engine.submit_group(group_from_pb(message)))
        bench.engine.check_integrity()
    for request_id in bench.engine.request_ids():
        bench.engine.cancel(request_id)
    bench.engine.check_integrity()
    assert not bench.engine.request_ids()


@fuzzing
@given(message=messages(worker_pb2.InferSequencesRequest))
def test_messages_to_an_encoder(message: worker_pb2.InferSequencesRequest) -> None:
    answered(lambda: infer_from_pb(message))
