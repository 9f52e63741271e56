"""The synchronous client against a real gRPC server."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.client import Client, FinishReason, TokenLogprobs, Usage
from headway.core.errors import (
    DeadlineExceededError,
    InvalidArgumentError,
    NotFoundError,
    ResourceExhaustedError,
    UnauthenticatedError,
    UnavailableError,
)
from tests.client.scripted import WORDS, ScriptedService, serving

TEXT = "".join(WORDS)


@pytest.fixture
def client(endpoint: str) -> Iterator[Client]:
    with Client(endpoint) as client:
        yield client


def test_generate_yields_every_piece_in_order(client: Client) -> None:
    chunks = list(client.generate("Tell", request_id="r1"))
    assert [chunk.text for chunk in chunks[:-1]] == list(WORDS)
    assert [token_id for chunk in chunks for token_id in chunk.token_ids] == list(range(len(WORDS)))
    assert [chunk.finish_reason for chunk in chunks] == [None] * 4 + [FinishReason.STOP, None]
    assert chunks[-1].usage == Usage(prompt_tokens=3, completion_tokens=5, cached_tokens=1)
    assert {chunk.request_id for chunk in chunks} == {"r1"}


def test_the_only_model_is_the_default(client: Client, service: ScriptedService) -> None:
    client.generate_text("Tell")
    assert service.requests[0].model == "tiny"


def test_a_model_must_be_named_where_several_are_served(client: Client, service: ScriptedService) -> None:
    service.models = ("tiny", "large")
    with pytest.raises(InvalidArgumentError, match="tiny, large"):
        client.generate_text("Tell")
    assert client.generate_text("Tell", model="large") == TEXT


def test_no_model_at_all_is_not_found(client: Client, service: ScriptedService) -> None:
    service.models = ()
    with pytest.raises(NotFoundError):
        client.generate_text("Tell")


def test_every_option_reaches_the_server(client: Client, service: ScriptedService) -> None:
    client.generate_text(
        "Tell",
        max_tokens=7,
        temperature=0.5,
        top_k=4,
        top_p=0.9,
        min_p=0.1,
        presence_penalty=0.25,
        frequency_penalty=-0.25,
        repetition_penalty=1.5,
        seed=2**63,
        stop="\n",
        stop_token_ids=[5],
        ignore_eos=True,
        min_tokens=2,
        logprobs=0,
        n=1,
        slo_ttft_s=0.5,
        slo_tpot_s=0.05,
        request_id="r1",
    )
    request = service.requests[0]
    options = request.options
    assert (options.max_tokens, options.temperature, options.top_k, options.top_p) == (7, 0.5, 4, 0.9)
    assert (options.min_p, options.presence_penalty, options.frequency_penalty) == (0.1, 0.25, -0.25)
    assert (options.repetition_penalty, options.seed, list(options.stop)) == (1.5, 2**63, ["\n"])
    assert (list(options.stop_token_ids), options.ignore_eos, options.min_tokens) == ([5], True, 2)
    assert (options.logprobs, options.n) == (0, 1)
    assert (request.slo.ttft_s, request.slo.tpot_s, request.request_id) == (0.5, 0.05, "r1")


def test_options_left_out_stay_absent(client: Client, service: ScriptedService) -> None:
    client.generate_text("Tell")
    assert service.requests[0].options.ListFields() == []
    assert service.requests[0].slo.ListFields() == []


def test_token_ids_and_messages_are_prompts_too(client: Client, service: ScriptedService) -> None:
    client.generate_text([1, 2, 3])
    client.generate_text([{"role": "user", "content": "Tell"}])
    assert list(service.requests[0].token_ids.ids) == [1, 2, 3]
    assert [(m.role, m.content) for m in service.requests[1].chat.messages] == [("user", "Tell")]


def test_an_empty_prompt_is_sent_as_token_ids(client: Client, service: ScriptedService) -> None:
    client.generate_text([])
    assert service.requests[0].WhichOneof("prompt") == "token_ids"


def test_logprobs_come_typed(client: Client) -> None:
    first = next(client.generate("Tell", logprobs=1))
    assert first.logprobs == (TokenLogprobs(0, -0.5, 1, ((0, -0.5),)),)


def test_several_sequences_are_told_apart_by_their_index(client: Client) -> None:
    texts = {0: "", 1: ""}
    for chunk in client.generate("Tell", n=2):
        texts[chunk.index] += chunk.text
    assert texts == {0: TEXT, 1: TEXT}
    with pytest.raises(InvalidArgumentError, match="n must be 1"):
        client.generate_text("Tell", n=2)


def test_leaving_the_loop_cancels_the_request(client: Client, service: ScriptedService) -> None:
    for _ in client.generate("endless"):
        break
    assert service.cancelled.wait(2)


def test_closing_the_iterator_cancels_the_request(client: Client, service: ScriptedService) -> None:
    chunks = client.generate("endless")
    next(chunks)
    assert not service.cancelled.is_set()
    chunks.close()
    assert service.cancelled.wait(2)


def test_the_servers_error_arrives_whole(client: Client) -> None:
    with pytest.raises(NotFoundError) as unknown:
        client.generate_text("Tell", model="huge")
    assert (unknown.value.hint, unknown.value.field) == ("Ask for tiny.", "model")
    with pytest.raises(ResourceExhaustedError) as full:
        client.generate_text("full")
    assert full.value.retry_after_s == 1.5


def test_an_error_half_way_comes_after_the_pieces_before_it(client: Client) -> None:
    chunks = client.generate("broken")
    assert [next(chunks).text, next(chunks).text] == list(WORDS[:2])
    with pytest.raises(InvalidArgumentError, match="It broke"):
        next(chunks)


def test_the_whole_answer_has_a_deadline(client: Client) -> None:
    with pytest.raises(DeadlineExceededError):
        client.generate_text("endless", timeout_s=0.2)


def test_wrong_arguments_are_refused_before_anything_is_sent(client: Client, service: ScriptedService) -> None:
    with pytest.raises(InvalidArgumentError, match="max_tokens"):
        client.generate("Tell", max_tokens="many")  # type: ignore[arg-type]
    with pytest.raises(InvalidArgumentError):
        client.generate([2**40])
    with pytest.raises(TypeError, match="max_new_tokens"):
        client.generate("Tell", max_new_tokens=3)  # type: ignore[call-arg]
    assert service.requests == []


def test_nobody_there_is_unavailable() -> None:
    with Client("127.0.0.1:1") as client, pytest.raises(UnavailableError):
        client.models()


def test_the_key_is_sent_with_every_call(service: ScriptedService, monkeypatch: pytest.MonkeyPatch) -> None:
    with serving(service, token="secret") as endpoint:
        with Client(endpoint) as stranger, pytest.raises(UnauthenticatedError):
            stranger.models()
        with Client(endpoint, api_key="secret") as friend:
            assert friend.generate_text("Tell") == TEXT
        monkeypatch.setenv("HEADWAY_API_KEY", "secret")
        monkeypatch.setenv("HEADWAY_ENDPOINT", endpoint)
        with Client() as friend:
            assert friend.models()[0].name == "tiny"


def test_models_and_status_come_typed(client: Client) -> None:
    (model,) = client.models()
    assert (model.name, model.max_model_len, model.num_replicas) == ("tiny", 1024, 1)
    assert model.spec is not None
    assert model.spec.num_layers == 2
    status = client.status()
    assert status.controller.ready
    assert status.controller.workers[0].hardware is not None
    assert status.fleet.groups[0].num_running == 3
    assert status.fleet.attainments[0].attainment == 0.9
    assert status.plan is not None
    assert status.plan.assignments[0].num_blocks == 1024


def test_without_a_stack_the_client_says_how_to_start_one(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("HEADWAY_ENDPOINT", raising=False)
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    with pytest.raises(NotFoundError, match="headway up"):
        Client()
