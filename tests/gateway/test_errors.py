"""Bad requests get the OpenAI error body, the right status, and words that help."""

import json

import httpx
import openai
import pytest

from headway.core.errors import InternalError, InvalidArgumentError, ResourceExhaustedError
from tests.gateway.conftest import MAX_BODY_BYTES
from tests.gateway.world import MAX_MODEL_LEN, MODEL, Gateway, World, wait_for

COMPLETIONS, CHAT = "/v1/completions", "/v1/chat/completions"
USER = {"role": "user", "content": "Hi"}
TOOL = {"type": "function", "function": {"name": "f"}}
BAD_TOOL = {"type": "function", "function": {"name": "f", "parameters": {"uniqueItems": True}}}
BAD_FORMAT = {"type": "json_schema", "json_schema": {"name": "x", "schema": {"uniqueItems": True}}}


def completion(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "prompt": "ab", "max_tokens": 2, **fields}


def chat(**fields: object) -> dict[str, object]:
    return {"model": MODEL, "messages": [USER], "max_tokens": 2, **fields}


def called(arguments: str) -> dict[str, object]:
    return {"role": "assistant", "tool_calls": [{"function": {"name": "f", "arguments": arguments}}]}


def choice(name: str) -> dict[str, object]:
    return {"type": "function", "function": {"name": name}}


def check_error(response: httpx.Response, *, status: int, param: str | None, code: str | None, words: str = "") -> None:
    assert response.status_code == status, response.text
    assert response.headers["content-type"] == "application/json"
    error = response.json()["error"]
    assert set(error) == {"message", "type", "param", "code"}
    assert (error["param"], error["code"]) == (param, code), error
    assert words in error["message"], error
    assert "Traceback" not in response.text


@pytest.mark.parametrize(
    ("path", "body", "param", "words"),
    [
        (COMPLETIONS, {"prompt": "x"}, "model", "model is missing"),
        (COMPLETIONS, {"model": MODEL}, "prompt", "prompt is missing"),
        (COMPLETIONS, completion(prompt={"text": "x"}), "prompt", "token ids"),
        (COMPLETIONS, completion(prompt=[]), "prompt", "token ids"),
        (COMPLETIONS, completion(prompt=["a", 1]), "prompt", "item 1"),
        (COMPLETIONS, completion(prompt=[[1], [True]]), "prompt", "item 1"),
        (COMPLETIONS, completion(prompt=""), "prompt", "empty"),
        (COMPLETIONS, completion(prompt=[1, 400]), "prompt[1]", "below 400"),
        (COMPLETIONS, completion(prompt=[[1], [5, -1]]), "prompt[1][1]", "below 400"),
        (COMPLETIONS, completion(model=7), "model", "valid string"),
        (COMPLETIONS, completion(max_tokens="many"), "max_tokens", "valid integer"),
        (COMPLETIONS, completion(max_tokens=1.5), "max_tokens", "valid integer"),
        (COMPLETIONS, completion(max_tokens=0), "max_tokens", "at least 1"),
        (COMPLETIONS, completion(max_tokens=3, max_completion_tokens=4), "max_tokens", "mean the same"),
        (COMPLETIONS, completion(temperature="hot"), "temperature", "valid number"),
        (COMPLETIONS, completion(temperature=-0.1), "temperature", "between 0 and 2"),
        (COMPLETIONS, completion(temperature=2.1), "temperature", "between 0 and 2"),
        (COMPLETIONS, completion(top_p=0), "top_p", "above 0"),
        (COMPLETIONS, completion(top_p=1.1), "top_p", "between 0 and 1"),
        (COMPLETIONS, completion(top_k=-2), "top_k", "at least -1"),
        (COMPLETIONS, completion(min_p=2), "min_p", "between 0 and 1"),
        (COMPLETIONS, completion(presence_penalty=3), "presence_penalty", "between -2 and 2"),
        (COMPLETIONS, completion(frequency_penalty=-3), "frequency_penalty", "between -2 and 2"),
        (COMPLETIONS, completion(repetition_penalty=0), "repetition_penalty", "between 1e-06 and 1e+06"),
        (COMPLETIONS, completion(repetition_penalty=1e-320), "repetition_penalty", "between 1e-06 and 1e+06"),
        (COMPLETIONS, completion(repetition_penalty=1e300), "repetition_penalty", "between 1e-06 and 1e+06"),
        (COMPLETIONS, completion(n=0), "n", "between 1 and 128"),
        (COMPLETIONS, completion(n=9), "n", "9 sequences"),
        (COMPLETIONS, completion(prompt=["a"] * 5, n=2), "prompt", "10 sequences"),
        (COMPLETIONS, completion(stop=7), "stop", "valid list"),
        (COMPLETIONS, completion(stop=["a", ""]), "stop[1]", "length of a stop string"),
        (COMPLETIONS, completion(stop=["a"] * 17), "stop", "number of stop strings"),
        (COMPLETIONS, completion(stop_token_ids=[400]), "stop_token_ids[0]", "between 0 and 399"),
        (COMPLETIONS, completion(min_tokens=3), "min_tokens", "between 0 and 2"),
        (COMPLETIONS, completion(max_tokens=None, min_tokens=10**12), "min_tokens", "between 0 and 16"),
        (COMPLETIONS, completion(logprobs=21), "logprobs", "between 0 and 20"),
        (COMPLETIONS, completion(logprobs=True), "logprobs", "valid integer"),
        (COMPLETIONS, completion(seed="x"), "seed", "valid integer"),
        (COMPLETIONS, completion(stream="yes"), "stream", "valid boolean"),
        (COMPLETIONS, completion(suffix="!"), "suffix", "not supported"),
        (COMPLETIONS, completion(best_of=1, n=2), "best_of", "between 2 and 20"),
        (COMPLETIONS, completion(best_of=4, stream=True), "best_of", "known when all have ended"),
        (COMPLETIONS, completion(use_beam_search=True), "beam_width", "between 2 and 16"),
        (COMPLETIONS, completion(beam_width=2, n=3), "n", "between 1 and 2"),
        (COMPLETIONS, completion(beam_width=2, best_of=3), "best_of", "between 2 and 2"),
        (COMPLETIONS, completion(beam_width=2, temperature=0.5), "temperature", "draws no samples"),
        (COMPLETIONS, completion(beam_width=2, logprobs=1), "logprobs", "no log probabilities"),
        (COMPLETIONS, completion(length_penalty=2.0), "length_penalty", "option of beam search"),
        (COMPLETIONS, completion(beam_width=2, early_stopping="soon"), "early_stopping", "never"),
        (COMPLETIONS, completion(logit_bias={"five": 1}), "logit_bias", "Keys are token ids"),
        (COMPLETIONS, completion(logit_bias={"400": 1}), "logit_bias", "between 0 and 399"),
        (COMPLETIONS, completion(logit_bias={"5": 101}), "logit_bias", "between -100 and 100"),
        (COMPLETIONS, completion(bad_words=["a", ""]), "bad_words[1]", "between 1 and 256"),
        (COMPLETIONS, completion(guided_regex="(a"), "guided_regex", "unclosed group"),
        (COMPLETIONS, completion(guided_regex="a", guided_choice=["a"]), "guided_choice", "exclude each other"),
        (COMPLETIONS, completion(guided_regex="a", bad_words=["a"]), "bad_words", "exclude each other"),
        (COMPLETIONS, completion(guided_regex="a", ignore_eos=True), "ignore_eos", "exclude each other"),
        (COMPLETIONS, completion(guided_regex="a", min_tokens=1), "min_tokens", "exclude each other"),
        (COMPLETIONS, completion(guided_regex="a", beam_width=2), "beam_width", "exclude each other"),
        (COMPLETIONS, completion(structured_outputs={"choice": []}), "structured_outputs.choice", "at least 1"),
        (COMPLETIONS, completion(structured_outputs={"grammar": "start: x"}), "structured_outputs.grammar", "unknown"),
        (COMPLETIONS, completion(structured_outputs={"json": '{"type": 5}'}), "structured_outputs.json", "followed"),
        (COMPLETIONS, completion(structured_outputs={"tag": "x"}), "structured_outputs", "none of json"),
        (CHAT, chat(messages="Hi"), "messages", "valid list"),
        (CHAT, chat(messages=["Hi"]), "messages[0]", "should be an object"),
        (CHAT, chat(messages=[USER, {"role": "robot", "content": ""}]), "messages[1].role", "'assistant'"),
        (CHAT, chat(messages=[{"content": "x"}]), "messages[0].role", "missing"),
        (CHAT, chat(messages=[{"role": "user", "content": 5}]), "messages[0].content", "string or a list"),
        (CHAT, chat(messages=[{"role": "user", "content": [{"type": "image_url"}]}]), "messages[0].content", "a part"),
        (CHAT, chat(messages=[called("{")]), "messages[0].tool_calls[0].function.arguments", "not valid JSON"),
        (CHAT, chat(tools=[{"type": "function"}]), "tools[0].function", "missing"),
        (CHAT, chat(tool_choice="required"), "tool_choice", "there are no tools"),
        (CHAT, chat(tools=[TOOL], tool_choice="always"), "tool_choice.type", "'required'"),
        (CHAT, chat(tools=[TOOL], tool_choice=choice("g")), "tool_choice.function.name", "not among the tools"),
        (CHAT, chat(tools=[TOOL], response_format={"type": "json_object"}), "tools", "exclude each other"),
        (CHAT, chat(tools=[BAD_TOOL], tool_choice="required"), "tools[0].function.parameters", "cannot be followed"),
        (CHAT, chat(response_format={"type": "yaml"}), "response_format.type", "'json_schema'"),
        (CHAT, chat(response_format={"type": "json_schema"}), "response_format.json_schema", "has none"),
        (CHAT, chat(response_format=BAD_FORMAT), "response_format.json_schema.schema", "Unimplemented keys"),
        (CHAT, chat(logprobs=5), "logprobs", "valid boolean"),
        (CHAT, chat(top_logprobs=3), "top_logprobs", "without logprobs"),
        (CHAT, chat(logprobs=True, top_logprobs=21), "top_logprobs", "top_logprobs is 21"),
        (CHAT, chat(max_tokens=None, max_completion_tokens=0), "max_completion_tokens", "max_completion_tokens is 0"),
    ],
)
def test_a_bad_field_is_named(gateway: Gateway, path: str, body: dict[str, object], param: str, words: str) -> None:
    check_error(httpx.post(gateway.url + path, json=body), status=400, param=param, code=None, words=words)


def test_fields_without_effect_are_taken(gateway: Gateway) -> None:
    body = chat(
        user="me",
        metadata={"a": "b"},
        store=True,
        service_tier="auto",
        tools=[],
        tool_choice="none",
        response_format={"type": "text"},
        logit_bias={},
        stop=None,
        temperature=None,
        parallel_tool_calls=True,
    )
    assert httpx.post(gateway.url + CHAT, json=body).status_code == 200
    assert httpx.post(gateway.url + COMPLETIONS, json=completion(best_of=2, n=2, suffix=None)).status_code == 200


@pytest.mark.parametrize("content", [b'{"model": ', b"\xff\xfe", b"", b"NaN", b'"text"', b"[1]"])
def test_a_body_that_is_no_json_object_is_refused(gateway: Gateway, content: bytes) -> None:
    response = httpx.post(gateway.url + COMPLETIONS, content=content)
    check_error(response, status=400, param=None, code=None, words="JSON")


def test_a_body_that_is_too_large_is_refused(gateway: Gateway) -> None:
    body = json.dumps(completion(prompt="x" * MAX_BODY_BYTES)).encode()
    whole = httpx.post(gateway.url + COMPLETIONS, content=body)
    check_error(whole, status=413, param=None, code="request_too_large", words=str(MAX_BODY_BYTES))
    pieces = httpx.post(gateway.url + COMPLETIONS, content=iter([body[:1000], body[1000:]]))
    check_error(pieces, status=413, param=None, code="request_too_large")


def test_an_unknown_model_is_not_found(gateway: Gateway) -> None:
    for path, body in ((COMPLETIONS, completion(model="gpt-5")), (CHAT, chat(model="gpt-5"))):
        response = httpx.post(gateway.url + path, json=body)
        check_error(response, status=404, param="model", code="model_not_found", words=MODEL)
    check_error(httpx.get(f"{gateway.url}/v1/models/gpt-5"), status=404, param="model", code="model_not_found")


@pytest.mark.parametrize(
    ("fields", "param", "words"),
    [
        ({"prompt": [5] * MAX_MODEL_LEN}, "prompt", f"{MAX_MODEL_LEN - 1} tokens or fewer"),
        ({"prompt": [[5], [5] * 600]}, "prompt[1]", "the prompt alone has 600"),
        ({"prompt": [5] * 500, "max_tokens": 13}, "max_tokens", "set max_tokens to 12"),
    ],
)
def test_what_does_not_fit_the_context_is_refused(
    gateway: Gateway, fields: dict[str, object], param: str, words: str
) -> None:
    response = httpx.post(gateway.url + COMPLETIONS, json=completion(**fields))
    check_error(response, status=400, param=param, code="context_length_exceeded", words=words)


def test_a_long_chat_is_refused_by_the_name_of_its_messages(gateway: Gateway) -> None:
    response = httpx.post(gateway.url + CHAT, json=chat(messages=[{"role": "user", "content": "zq" * 2000}]))
    check_error(response, status=400, param="messages", code="context_length_exceeded")


@pytest.mark.parametrize("path", ["/", "/v1", "/v1/images/generations", "/v2/completions"])
def test_an_unknown_path_is_not_found(gateway: Gateway, path: str) -> None:
    check_error(httpx.post(gateway.url + path, json={}), status=404, param=None, code="unknown_url")


def test_a_wrong_method_is_refused(gateway: Gateway) -> None:
    response = httpx.get(gateway.url + COMPLETIONS)
    check_error(response, status=405, param=None, code="method_not_supported")
    assert response.headers["allow"] == "POST"


@pytest.mark.parametrize("name", ["x-headway-slo-ttft-ms", "x-headway-slo-tpot-ms"])
@pytest.mark.parametrize("value", ["soon", "0", "-5", "nan", "inf"])
def test_a_bad_slo_header_is_named(gateway: Gateway, name: str, value: str) -> None:
    response = httpx.post(gateway.url + COMPLETIONS, json=completion(), headers={name: value})
    check_error(response, status=400, param=name, code=None, words="milliseconds")


def test_a_bad_request_id_is_refused(gateway: Gateway) -> None:
    response = httpx.get(f"{gateway.url}/v1/models", headers={"x-request-id": "a b"})
    check_error(response, status=400, param="x-request-id", code=None)


def test_a_refusal_of_the_router_reaches_the_client(client: openai.OpenAI, world: World) -> None:
    world.router.fault = ResourceExhaustedError("It would take 9 s.", hint="Allow more time.", retry_after_s=2.2)
    for stream in (False, True):
        with pytest.raises(openai.RateLimitError, match=r"It would take 9 s\. Allow more time\.") as caught:
            client.completions.create(model=MODEL, prompt="ab", stream=stream)
        assert caught.value.response.headers["retry-after"] == "3"
        assert caught.value.code == "rate_limit_exceeded"
    assert world.worker.submitted == []


def test_no_worker_is_unavailable(client: openai.OpenAI, world: World) -> None:
    world.router.workers.clear()
    with pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model=MODEL, prompt="ab")
    assert caught.value.status_code == 503
    assert caught.value.response.headers["retry-after"] == "1"


def test_a_refusal_of_the_worker_reaches_the_client(client: openai.OpenAI, world: World) -> None:
    world.worker.fail_submit = InvalidArgumentError("Too odd.", field="prompt")
    with pytest.raises(openai.BadRequestError, match="Too odd"):
        client.completions.create(model=MODEL, prompt="ab")
    wait_for(lambda: [release.outcome for release in world.router.released] == ["error"])


def test_an_error_in_mid_stream_ends_the_stream(gateway: Gateway, client: openai.OpenAI, world: World) -> None:
    world.worker.fail_at = (3, InternalError("The worker failed to compute this request."))
    with pytest.raises(openai.APIError, match="failed to compute"):
        list(client.completions.create(model=MODEL, prompt="ab", max_tokens=9, stream=True))
    response = httpx.post(gateway.url + COMPLETIONS, json=completion(max_tokens=9, stream=True))
    assert response.status_code == 200
    *texts, last = [line.removeprefix("data: ") for line in response.text.split("\n\n") if line]
    assert len(texts) == 3
    error = json.loads(last)["error"]
    assert (error["type"], error["code"]) == ("server_error", "internal_error")
    with pytest.raises(openai.InternalServerError) as caught:
        client.completions.create(model=MODEL, prompt="ab", max_tokens=9)
    assert caught.value.status_code == 500


def test_one_failing_prompt_ends_the_others(client: openai.OpenAI, world: World) -> None:
    world.worker.fail_at = (3, InternalError("broken"))
    with pytest.raises(openai.InternalServerError, match="broken"):
        client.completions.create(model=MODEL, prompt=["a", "b", "c"], max_tokens=300)
    wait_for(lambda: world.router.num_open == 0)
    assert {release.outcome for release in world.router.released} <= {"error", "cancelled"}
