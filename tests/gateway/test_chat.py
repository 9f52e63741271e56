"""POST /v1/chat/completions through the official client. The worker repeats the prompt."""

import openai
import pytest
from tokenizers import Tokenizer

from tests.gateway.scripted_worker import EOS_ID
from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, World

MESSAGES = [{"role": "system", "content": "Be brief."}, {"role": "user", "content": "Hi"}]
RENDERED = "[system]Be brief.[user]Hi[assistant]"


def test_the_template_makes_the_prompt(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    num_tokens = len(tokenizer.encode(RENDERED).ids)
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_completion_tokens=num_tokens, temperature=0
    )
    assert answer.id.startswith("chatcmpl-")
    assert answer.object == "chat.completion"
    assert answer.choices[0].message.role == "assistant"
    assert answer.choices[0].message.content == RENDERED
    assert answer.choices[0].finish_reason == "length"
    assert answer.usage is not None
    assert answer.usage.prompt_tokens == num_tokens


def test_special_tokens_come_from_the_template_alone(client: openai.OpenAI, world: World) -> None:
    client.chat.completions.create(
        model=MODEL,
        messages=MESSAGES,
        max_tokens=1,
        extra_body={"chat_template_kwargs": {"mark_turns": True}},
    )
    assert list(world.worker.last.prompt_token_ids).count(EOS_ID) == 2


def test_a_stream_starts_with_the_role_and_ends_with_the_reason(client: openai.OpenAI) -> None:
    chunks = list(
        client.chat.completions.create(
            model=MODEL,
            messages=MESSAGES,
            max_tokens=8,
            temperature=0,
            stream=True,
            stream_options={"include_usage": True},
        )
    )
    first, *middle, last, usage = chunks
    assert {chunk.object for chunk in chunks} == {"chat.completion.chunk"}
    assert first.choices[0].delta.role == "assistant"
    assert RENDERED.startswith("".join(chunk.choices[0].delta.content or "" for chunk in middle))
    assert len(middle) == 8
    assert last.choices[0].finish_reason == "length"
    assert last.choices[0].delta.content is None
    assert usage.choices == []
    assert usage.usage is not None
    assert usage.usage.completion_tokens == 8


def test_n_messages_stream_side_by_side(client: openai.OpenAI) -> None:
    roles, reasons = [], []
    for chunk in client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=4, n=3, stream=True):
        choice = chunk.choices[0]
        roles += [choice.index] if choice.delta.role else []
        reasons += [choice.index] if choice.finish_reason else []
    assert sorted(roles) == sorted(reasons) == [0, 1, 2]


def test_content_may_come_in_parts(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    parts = [{"type": "text", "text": "one"}, {"type": "text", "text": "two"}]
    client.chat.completions.create(model=MODEL, messages=[{"role": "user", "content": parts}], max_tokens=1)
    assert tokenizer.decode(list(world.worker.last.prompt_token_ids)) == "[user]one\ntwo[assistant]"


def test_an_answer_can_be_sent_back(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, max_tokens=2, temperature=0)
    history = [*MESSAGES, answer.choices[0].message.model_dump(), {"role": "user", "content": "And?"}]
    client.chat.completions.create(model=MODEL, messages=history, max_tokens=1)
    assert tokenizer.decode(list(world.worker.last.prompt_token_ids)).endswith("[user]And?[assistant]")


def test_a_developer_speaks_as_the_system(client: openai.OpenAI, world: World, tokenizer: Tokenizer) -> None:
    client.chat.completions.create(model=MODEL, messages=[{"role": "developer", "content": "x"}], max_tokens=1)
    assert tokenizer.decode(list(world.worker.last.prompt_token_ids)) == "[system]x[assistant]"


def test_the_context_bounds_an_unbounded_answer(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(model=MODEL, messages=MESSAGES, temperature=0)
    assert answer.usage is not None
    assert answer.usage.total_tokens == MAX_MODEL_LEN


def test_logprobs_tell_bytes_and_alternatives(client: openai.OpenAI) -> None:
    answer = client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2
    )
    logprobs = answer.choices[0].logprobs
    assert logprobs is not None
    assert logprobs.content is not None
    raw = bytes(value for entry in logprobs.content for value in entry.bytes or ())
    assert raw.decode() == answer.choices[0].message.content
    assert [len(entry.top_logprobs) for entry in logprobs.content] == [2, 2, 2]
    streamed = []
    for chunk in client.chat.completions.create(
        model=MODEL, messages=MESSAGES, max_tokens=3, temperature=0, logprobs=True, top_logprobs=2, stream=True
    ):
        if chunk.choices[0].logprobs is not None:
            streamed += chunk.choices[0].logprobs.content or []
    assert streamed == logprobs.content


@pytest.mark.parametrize(
    ("model", "messages", "message"),
    [
        (MODEL, [], "no messages"),
        (MODEL, [*MESSAGES, {"role": "system", "content": "again"}], "system comes first"),
        (PLAIN_MODEL, MESSAGES, "no chat template"),
    ],
)
def test_messages_that_cannot_be_rendered_are_refused(
    client: openai.OpenAI, model: str, messages: list[object], message: str
) -> None:
    with pytest.raises(openai.BadRequestError, match=message) as caught:
        client.chat.completions.create(model=model, messages=messages, max_tokens=1)  # type: ignore[arg-type]
    assert caught.value.param == "messages"
