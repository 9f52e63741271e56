"""How a model's own defaults and a request's options go together."""

import pytest

from headway.core.request import SamplingParams
from headway.core.sampling_defaults import SamplingDefaults
from headway.gateway.openai.ignored import IgnoredFields
from headway.gateway.openai.schema import ChatRequest, CompletionRequest, read_request
from headway.gateway.options import Options
from headway.gateway.servicer import options_from_pb
from headway.v1 import inference_pb2

DEFAULTS = SamplingDefaults(temperature=0.6, top_p=0.9, top_k=20, min_p=0.1, repetition_penalty=1.2, max_tokens=100)


def over_http(*, chat: bool = False, defaults: SamplingDefaults = DEFAULTS, **fields: object) -> Options:
    ignored = IgnoredFields(is_strict=True)
    if chat:
        body = {"model": "m", "messages": [{"role": "user", "content": "Hi"}], **fields}
        return read_request(ChatRequest, body, ignored=ignored).options(defaults)
    return read_request(CompletionRequest, {"model": "m", "prompt": "x", **fields}, ignored=ignored).options(defaults)


def over_grpc(*, defaults: SamplingDefaults = DEFAULTS, **fields: object) -> Options:
    return options_from_pb(inference_pb2.GenerateOptions(**fields), defaults=defaults)


def sampling(options: Options, *, num_prompt_tokens: int = 10) -> SamplingParams:
    options.check(vocab_size=400)
    max_tokens = options.max_output_tokens(num_prompt_tokens, max_model_len=512, field="prompt")
    return options.sampling(max_tokens=max_tokens, vocab_size=400, random_seed=0)


@pytest.mark.parametrize("read", [over_http, over_grpc])
def test_what_a_request_leaves_open_is_the_models(read) -> None:
    drawn = sampling(read())
    assert (drawn.temperature, drawn.top_p, drawn.top_k, drawn.min_p) == (0.6, 0.9, 20, 0.1)
    assert drawn.repetition_penalty == 1.2
    own = sampling(read(temperature=0.0, top_p=1.0, top_k=0, min_p=0.0, repetition_penalty=1.0))
    assert (own.temperature, own.top_p, own.top_k, own.min_p, own.repetition_penalty) == (0, 1, 0, 0, 1)
    assert sampling(read(temperature=1e-50)).temperature == 0


@pytest.mark.parametrize("read", [over_http, over_grpc])
def test_a_beam_search_draws_nothing(read) -> None:
    searched = sampling(read(beam_width=2))
    assert searched.beam is not None
    assert searched.repetition_penalty == 1.2
    assert sampling(read(beam_width=2, temperature=1e-9)).beam is not None


def test_max_new_tokens_is_the_length_of_a_chats_answer() -> None:
    assert sampling(over_http(chat=True)).max_tokens == 100
    assert sampling(over_http(chat=True), num_prompt_tokens=500).max_tokens == 12
    assert sampling(over_http(chat=True, max_tokens=300)).max_tokens == 300
    assert sampling(over_grpc()).max_tokens == 100
    assert sampling(over_http(), num_prompt_tokens=10).max_tokens == 16  # the OpenAI API's own for completions


def test_max_new_tokens_of_a_chosen_directory_is_a_limit() -> None:
    limited = SamplingDefaults(max_tokens=12, max_tokens_limit=12)
    assert sampling(over_http(chat=True, max_tokens=300, defaults=limited)).max_tokens == 12
    assert sampling(over_http(defaults=limited)).max_tokens == 12
    assert sampling(over_http(max_tokens=5, defaults=limited)).max_tokens == 5
    assert sampling(over_grpc(max_tokens=300, defaults=limited)).max_tokens == 12
