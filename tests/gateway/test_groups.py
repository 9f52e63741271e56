"""Several sequences of one prompt: samples, the best of them, and beams. The worker repeats the prompt."""

import threading

import httpx
import openai
import pytest
from tokenizers import Tokenizer

from headway.client import Client
from headway.core.errors import InvalidArgumentError
from tests.gateway.test_resumption import kill, worker_process
from tests.gateway.world import MODEL, Gateway, World

PROMPT = "The quick brown fox jumps. "
TEMPERATURE = 0.7


def rotated(tokenizer: Tokenizer, shift: int, num_tokens: int) -> str:
    ids = tokenizer.encode(PROMPT).ids
    return tokenizer.decode([ids[(k + shift) % len(ids)] for k in range(num_tokens)])


def test_the_samples_of_a_prompt_are_one_group_whose_prompt_goes_over_the_wire_once(
    client: openai.OpenAI, world: World
) -> None:
    client.completions.create(model=MODEL, prompt=[PROMPT, "Other"], max_tokens=3, n=3)
    assert sorted(map(len, world.worker.groups)) == [3, 3]
    assert {request.num_sequences for request in world.router.routed} == {3}


def test_only_what_still_runs_is_submitted_again_as_one_group(client: openai.OpenAI, world: World) -> None:
    with worker_process() as (process, endpoint):
        world.router.workers = {"worker-9": endpoint, "worker-0": world.worker_endpoint}
        stream = client.completions.create(
            model=MODEL, prompt=PROMPT, max_tokens=100, n=3, seed=0, temperature=0.7, stream=True
        )
        for number, _ in enumerate(stream):
            if number == 30:
                kill(process)
    assert len(world.worker.groups) == 1
    assert len(world.worker.groups[0]) == 3


def test_best_of_returns_the_most_likely_samples_best_first(
    client: openai.OpenAI, world: World, tokenizer: Tokenizer
) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=4, n=2, best_of=5, seed=0, temperature=TEMPERATURE
    )
    # The scripted worker finds samples the less likely the higher their seed.
    assert [choice.text for choice in answer.choices] == [rotated(tokenizer, rank, 4) for rank in range(2)]
    assert [choice.index for choice in answer.choices] == [0, 1]
    assert all(choice.logprobs is None for choice in answer.choices)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 20, "every sample is counted"
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == len(tokenizer.encode(PROMPT).ids) // 2
    assert [len(group) for group in world.worker.groups] == [5]


def test_best_of_two_prompts_ranks_each_by_itself(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=[PROMPT, "Other."], max_tokens=4, best_of=3, seed=0, temperature=TEMPERATURE, logprobs=0
    )
    assert [choice.index for choice in answer.choices] == [0, 1]
    logprobs = [choice.logprobs for choice in answer.choices]
    assert [(entry.token_logprobs or [])[0] for entry in logprobs if entry] == pytest.approx([-0.5, -0.8])


def test_beams_come_best_first(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    answer = client.completions.create(
        model=MODEL,
        prompt=PROMPT,
        max_tokens=5,
        n=2,
        extra_body={"beam_width": 4, "length_penalty": 0.5, "early_stopping": "never"},
    )
    assert [choice.text for choice in answer.choices] == [rotated(tokenizer, rank, 5) for rank in range(2)]
    assert [choice.finish_reason for choice in answer.choices] == ["length", "length"]
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 10
    beam = world.worker.last.sampling.beam
    assert (beam.width, beam.num_hypotheses, beam.length_penalty, beam.early_stopping) == (4, 2, 0.5, "never")
    assert world.router.routed[-1].num_sequences == 4


def test_with_use_beam_search_best_of_or_n_is_the_width(client: openai.OpenAI, world: World) -> None:
    messages = [{"role": "user", "content": "Hi"}]
    for fields, width, num_choices in (({"n": 3}, 3, 3), ({"n": 2, "best_of": 4}, 4, 2)):
        body = {"model": MODEL, "messages": messages, "max_tokens": 3, "use_beam_search": True, **fields}
        answer = client.post("/chat/completions", body=body, cast_to=httpx.Response).json()
        assert len(answer["choices"]) == num_choices
        assert world.worker.last.sampling.beam.width == width


def test_a_stream_of_beams_has_each_text_in_one_event(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    stream = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=5, n=2, stream=True, extra_body={"beam_width": 2}
    )
    chunks = [chunk.choices[0] for chunk in stream]
    assert [chunk.index for chunk in chunks] == [0, 1]
    assert [chunk.text for chunk in chunks] == [rotated(tokenizer, rank, 5) for rank in range(2)]
    assert [chunk.finish_reason for chunk in chunks] == ["length", "length"]


def test_a_stop_string_ends_the_text_of_a_hypothesis(client: openai.OpenAI) -> None:
    answer = client.completions.create(
        model=MODEL, prompt=PROMPT, max_tokens=20, n=1, stop="fox", extra_body={"beam_width": 2}
    )
    assert answer.choices[0].text == "The quick brown "
    assert answer.choices[0].finish_reason == "stop"


def test_a_search_whose_worker_dies_starts_again_elsewhere(client: openai.OpenAI, world: World) -> None:
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": 100, "n": 2, "extra_body": {"beam_width": 2}}
    expected = [choice.text for choice in client.completions.create(**options).choices]
    world.reset()
    with worker_process() as (process, endpoint):
        world.router.workers = {"worker-9": endpoint, "worker-0": world.worker_endpoint}
        threading.Timer(0.3, kill, [process]).start()
        texts = [choice.text for choice in client.completions.create(**options).choices]
    assert texts == expected
    assert not world.worker.last.output_token_ids
    assert len(world.router.routed) == 2


def test_grpc_clients_have_beams_and_best_of(gateway: Gateway, world: World, tokenizer: Tokenizer) -> None:
    with Client(gateway.grpc_endpoint) as client:
        options = {"model": MODEL, "max_tokens": 4, "seed": 0, "temperature": TEMPERATURE}
        *pieces, end = client.generate(PROMPT, best_of=3, **options)
        assert "".join(piece.text for piece in pieces) == rotated(tokenizer, 0, 4)
        assert {piece.index for piece in pieces} == {0}
        assert not any(piece.logprobs for piece in pieces)
        assert end.usage is not None
        assert end.usage.completion_tokens == 12
        chunks = list(client.generate(PROMPT, model=MODEL, max_tokens=4, beam_width=3, n=3, early_stopping="true"))
    assert [chunk.text for chunk in chunks[:-1]] == [rotated(tokenizer, rank, 4) for rank in range(3)]
    assert world.worker.last.sampling.beam.early_stopping == "true"


def test_a_prefix_is_tokenised_as_prompts_that_begin_with_it(gateway: Gateway, tokenizer: Tokenizer) -> None:
    with Client(gateway.grpc_endpoint) as client:
        assert client.tokenize(PROMPT, model=MODEL) == tokenizer.encode(PROMPT).ids
        system = client.tokenize([{"role": "system", "content": "Be brief."}], model=MODEL)
        assert tokenizer.decode(system) == "[system]Be brief."
        with pytest.raises(InvalidArgumentError):
            client.tokenize([1, 2], model=MODEL)
