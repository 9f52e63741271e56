"""POST /v1/completions through the official client. The worker repeats the prompt."""

import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.scripted_worker import EOS_ID, VOCAB_SIZE
from tests.gateway.vocabularies import sentencepiece
from tests.gateway.world import MODEL, PLAIN_MODEL, World, wait_for

PROMPT = "The quick brown fox. "


def test_the_answer_is_complete_and_counted(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    num_tokens = len(tokenizer.encode(PROMPT).ids)
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=2 * num_tokens, temperature=0)
    assert answer.object == "text_completion"
    assert answer.id.startswith("cmpl-")
    assert answer.model == MODEL
    assert (answer.system_fingerprint or "").startswith("fp_")
    assert answer.choices[0].text == PROMPT * 2
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == num_tokens
    assert answer.usage.completion_tokens == 2 * num_tokens
    assert answer.usage.total_tokens == 3 * num_tokens
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens == num_tokens // 2


def test_a_stream_adds_up_and_ends_with_usage(client: openai.OpenAI) -> None:
    chunks = list(
        client.completions.create(
            model=MODEL,
            prompt=PROMPT,
            max_tokens=9,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    *texts, last = chunks
    assert (PROMPT * 3).startswith("".join(chunk.choices[0].text for chunk in texts))
    assert all(chunk.choices[0].text for chunk in texts)
    assert [chunk.choices[0].finish_reason for chunk in texts] == [None] * 8 + ["length"]
    assert all(chunk.usage is None for chunk in texts)
    assert last.choices == []
    assert last.usage is not None
    assert last.usage.completion_tokens == 9
    assert len({chunk.id for chunk in chunks}) == 1


def test_usage_is_left_out_of_streams_that_do_not_ask_for_it(client: openai.OpenAI) -> None:
    chunks = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=3, stream=True)
    assert all("usage" not in chunk.model_fields_set and chunk.choices for chunk in chunks)


def test_sixteen_tokens_are_the_default(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt=PROMPT)
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 16


def test_each_of_n_has_a_seed_of_its_own(client: openai.OpenAI, world: World) -> None:
    answer = client.completions.create(model=MODEL, prompt=[10, 11, 12, 13], n=3, seed=5, max_tokens=4)
    assert [choice.index for choice in answer.choices] == [0, 1, 2]
    assert len({choice.text for choice in answer.choices}) == 3
    assert sorted(submit.sampling.seed for submit in world.worker.submitted) == [5, 6, 7]
    assert len({submit.request_id for submit in world.worker.submitted}) == 3
    assert len(world.router.routed) == 1
    assert world.router.routed[0].num_sequences == 3
    assert answer.usage is not None
    assert (answer.usage.prompt_tokens, answer.usage.completion_tokens) == (4, 12)


def test_several_prompts_are_answered_in_order(client: openai.OpenAI, world: World) -> None:
    prompts = ["one ", "two ", "three "]
    answer = client.completions.create(model=MODEL, prompt=prompts, n=2, max_tokens=3, temperature=0)
    assert [choice.index for choice in answer.choices] == list(range(6))
    for choice in answer.choices:
        assert (prompts[choice.index // 2] * 3).startswith(choice.text)
        assert choice.text
    assert len({request.request_id for request in world.router.routed}) == 3


def test_several_prompts_stream_side_by_side(client: openai.OpenAI) -> None:
    texts = {0: "", 1: ""}
    finished = []
    for chunk in client.completions.create(model=MODEL, prompt=["ab", "cd"], max_tokens=40, temperature=0, stream=True):
        texts[chunk.choices[0].index] += chunk.choices[0].text
        if chunk.choices[0].finish_reason:
            finished.append(chunk.choices[0].index)
    assert texts[0].startswith("abab")
    assert texts[1].startswith("cdcd")
    assert sorted(finished) == [0, 1]


@pytest.mark.parametrize("prompt", [[40, 41, 42], [[40, 41, 42]]])
def test_token_ids_are_taken_as_they_are(client: openai.OpenAI, world: World, prompt: list[int]) -> None:
    client.completions.create(model=MODEL, prompt=prompt, max_tokens=1)
    assert list(world.worker.last.prompt_token_ids) == [40, 41, 42]


def test_lists_of_token_ids_are_several_prompts(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt=[[40, 41], [50]], max_tokens=1)
    assert sorted(list(submit.prompt_token_ids) for submit in world.worker.submitted) == [[40, 41], [50]]


def test_bos_is_added_where_the_tokenizer_adds_it(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=PLAIN_MODEL, prompt="fox", max_tokens=1)
    assert list(world.worker.last.prompt_token_ids) == sentencepiece().encode("fox").ids


def test_echo_puts_the_prompt_in_front(client: openai.OpenAI) -> None:
    answer = client.completions.create(model=MODEL, prompt="ab", max_tokens=4, echo=True, temperature=0)
    assert answer.choices[0].text.startswith("abab")
    stream = client.completions.create(model=MODEL, prompt="ab", max_tokens=4, echo=True, temperature=0, stream=True)
    assert "".join(chunk.choices[0].text for chunk in stream) == answer.choices[0].text


def test_logprobs_stand_beside_each_token(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    token_ids = tokenizer.encode(PROMPT).ids
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=3, temperature=0, logprobs=2)
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.tokens == [tokenizer.decode([token_id]) for token_id in token_ids[:3]]
    assert logprobs.token_logprobs == [-0.5] * 3
    assert [len(top) for top in logprobs.top_logprobs or ()] == [2] * 3
    assert logprobs.text_offset == [0, len(logprobs.tokens[0]), len(logprobs.tokens[0] + logprobs.tokens[1])]


def test_streamed_logprobs_are_those_of_the_whole_answer(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": 6, "temperature": 0, "logprobs": 1, "echo": True}
    whole = client.completions.create(**options).choices[0].logprobs
    assert whole is not None
    parts = [chunk.choices[0].logprobs for chunk in client.completions.create(**options, stream=True)]
    for name in ("tokens", "token_logprobs", "top_logprobs", "text_offset"):
        assert [value for part in parts for value in getattr(part, name)] == getattr(whole, name)


def test_echoed_logprobs_begin_with_the_prompt(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    num_prompt_tokens = len(tokenizer.encode(PROMPT).ids)
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=2, temperature=0, logprobs=1, echo=True)
    choice = answer.choices[0]
    assert choice.logprobs is not None
    assert choice.logprobs.tokens is not None
    assert choice.logprobs.token_logprobs is not None
    assert len(choice.logprobs.tokens) == num_prompt_tokens + 2
    assert choice.logprobs.token_logprobs[0] is None
    assert "".join(choice.logprobs.tokens) == choice.text
    for token, offset in zip(choice.logprobs.tokens, choice.logprobs.text_offset or (), strict=True):
        assert choice.text[offset:].startswith(token)


def test_no_tokens_and_echo_score_the_prompt(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    num_prompt_tokens = len(tokenizer.encode(PROMPT).ids)
    answer = client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=0, logprobs=0, echo=True)
    choice = answer.choices[0]
    assert choice.text == PROMPT
    assert choice.logprobs is not None
    assert len(choice.logprobs.token_logprobs or ()) == num_prompt_tokens
    assert choice.finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.completion_tokens == 0


@pytest.mark.parametrize("stream", [False, True])
@pytest.mark.parametrize(
    ("stop", "text"),
    [
        ("wn f", "The quick bro"),
        (["zzz", "x. The", "fox. T"], "The quick brown "),
        (["never"], PROMPT * 2),
        (["a", "b", "c", "d", "e"], "Th"),
    ],
)
def test_a_stop_string_ends_the_text_before_it(
    client: openai.OpenAI, tokenizer: Tokenizer, stop: object, text: str, stream: bool
) -> None:
    num_tokens = 2 * len(tokenizer.encode(PROMPT).ids)
    options = {"model": MODEL, "prompt": PROMPT, "max_tokens": num_tokens, "temperature": 0, "stop": stop}
    if stream:
        chunks = list(client.completions.create(**options, stream=True))
        assert "".join(chunk.choices[0].text for chunk in chunks) == text
        reason = chunks[-1].choices[0].finish_reason
    else:
        choice = client.completions.create(**options).choices[0]
        assert choice.text == text
        reason = choice.finish_reason
    assert reason == ("length" if stop == ["never"] else "stop")


def test_the_worker_is_told_when_a_stop_string_came(client: openai.OpenAI, world: World) -> None:
    client.completions.create(model=MODEL, prompt=PROMPT, max_tokens=400, temperature=0, stop="brown")
    wait_for(lambda: world.worker.cancelled == [world.worker.last.request_id])


def test_stop_strings_wait_for_min_tokens(client: openai.OpenAI) -> None:
    options = {"model": MODEL, "prompt": "ab", "max_tokens": 30, "temperature": 0, "stop": "b"}
    assert client.completions.create(**options).choices[0].text == "a"
    later = client.completions.create(**options, extra_body={"min_tokens": 4}).choices[0]
    assert later.text == "ababa"
    assert later.finish_reason == "stop"
    begun_before = client.completions.create(**{**options, "stop": "ba"}, extra_body={"min_tokens": 4}).choices[0]
    assert begun_before.text == "aba", "as in vLLM, a stop string may begin in the first tokens, and not end there"


def test_the_end_of_sequence_token_leaves_no_text(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    prompt = [*tokenizer.encode("ab").ids, EOS_ID, *tokenizer.encode("cd").ids]
    num_before = len(tokenizer.encode("ab").ids)
    answer = client.completions.create(model=MODEL, prompt=prompt, max_tokens=30, temperature=0, logprobs=0)
    assert answer.choices[0].text == "ab"
    assert answer.choices[0].finish_reason == "stop"
    assert answer.choices[0].logprobs is not None
    assert len(answer.choices[0].logprobs.tokens or ()) == num_before
    assert answer.usage is not None
    assert answer.usage.completion_tokens == num_before + 1
    ignoring = client.completions.create(
        model=MODEL, prompt=prompt, max_tokens=len(prompt), temperature=0, extra_body={"ignore_eos": True}
    )
    assert ignoring.choices[0].text == "abcd"
    assert ignoring.choices[0].finish_reason == "length"


def test_a_stop_token_is_left_out_of_the_text(client: openai.OpenAI, tokenizer: Tokenizer) -> None:
    first, *_, last = tokenizer.encode("a.b").ids
    answer = client.completions.create(
        model=MODEL, prompt="a.b", max_tokens=9, temperature=0, extra_body={"stop_token_ids": [last]}
    )
    assert answer.choices[0].text == "a."
    assert answer.choices[0].finish_reason == "stop"
    assert first != last


def test_every_sampling_option_reaches_the_worker(client: openai.OpenAI, world: World) -> None:
    client.completions.create(
        model=MODEL,
        prompt="ab",
        max_tokens=7,
        temperature=0.5,
        top_p=0.75,
        presence_penalty=0.25,
        frequency_penalty=-0.25,
        seed=-3,
        logprobs=4,
        user="someone",
        extra_body={"top_k": 9, "min_p": 0.125, "repetition_penalty": 1.5, "min_tokens": 2, "ignore_eos": True},
    )
    sampling = world.worker.last.sampling
    assert (sampling.max_tokens, sampling.temperature, sampling.top_p, sampling.top_k) == (7, 0.5, 0.75, 9)
    assert (sampling.min_p, sampling.presence_penalty, sampling.frequency_penalty) == (0.125, 0.25, -0.25)
    assert (sampling.repetition_penalty, sampling.min_tokens, sampling.ignore_eos) == (1.5, 2, True)
    assert sampling.seed == 2**64 - 3
    assert sampling.num_logprobs == 4
    assert not sampling.HasField("num_prompt_logprobs")


@pytest.mark.parametrize(("top_k", "passed_on"), [(-1, 0), (0, 0), (10**12, VOCAB_SIZE)])
def test_every_top_k_that_makes_sense_is_taken(client: openai.OpenAI, world: World, top_k: int, passed_on: int) -> None:
    client.completions.create(model=MODEL, prompt="ab", max_tokens=1, extra_body={"top_k": top_k})
    assert world.worker.last.sampling.top_k == passed_on


def test_unseeded_requests_differ(client: openai.OpenAI, world: World) -> None:
    for _ in range(2):
        client.completions.create(model=MODEL, prompt="ab", max_tokens=1)
    first, second = world.worker.submitted
    assert first.sampling.seed != second.sampling.seed


def test_multi_byte_characters_stream_whole(client: openai.OpenAI) -> None:
    text = "列车🚂é"
    stream = client.completions.create(model=MODEL, prompt=text, max_tokens=60, temperature=0, stream=True)
    pieces = [chunk.choices[0].text for chunk in stream]
    assert len(pieces) == 60
    assert (text * 20).startswith("".join(pieces).rstrip("\ufffd"))
    assert not any("\ufffd" in piece for piece in pieces[:-1])
