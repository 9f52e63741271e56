"""Defaults of a checkpoint, and fields of other servers, with the official openai client against whole stacks."""

import json
import shutil
from collections.abc import Iterator
from pathlib import Path

import httpx
import openai
import pytest
import torch
from transformers import AutoModelForCausalLM, PreTrainedModel

from headway.client import Client
from tests.checkpoints import make_tokenizer
from tests.greedy import greedy
from tests.integration.stack import RunningStack

PROMPT = "the headway between two trains"
IDS = make_tokenizer().encode(PROMPT).ids
LONG = [5 + i * 11 % 400 for i in range(300)]
PENALTY, NUM_TOKENS, NUM_CHAT_TOKENS = 1.7, 13, 9


@pytest.fixture(scope="module")
def tuned_checkpoint(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Path:
    """With a generation_config.json that is greedy, and has a penalty, a length and another stop token."""
    directory = tmp_path_factory.mktemp("tuned") / "model"
    shutil.copytree(checkpoint, directory)
    config = {
        "temperature": 0.0,
        "repetition_penalty": PENALTY,
        "max_new_tokens": NUM_CHAT_TOKENS,
        "eos_token_id": [1, greedy(checkpoint, IDS, NUM_TOKENS, penalty=PENALTY)[-1]],
    }
    (directory / "generation_config.json").write_text(json.dumps(config))
    return directory


@pytest.fixture(scope="module")
def tuned(tmp_path_factory: pytest.TempPathFactory, tuned_checkpoint: Path) -> Iterator[RunningStack]:
    """Computes prompts in chunks."""
    options = ("--max-model-len", "1024", "--max-num-batched-tokens", "64", "--block-size", "16", "--no-profile")
    running = RunningStack(tmp_path_factory.mktemp("stack"), {"tiny": tuned_checkpoint}, *options).start()
    yield running
    running.stop()


@pytest.fixture(scope="module")
def client(tuned: RunningStack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{tuned.url}/v1", api_key="none", max_retries=0)


@pytest.fixture(scope="module")
def reference(checkpoint: Path) -> PreTrainedModel:
    return AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()


def test_generation_config_gives_the_defaults(client: openai.OpenAI, tuned: RunningStack, checkpoint: Path) -> None:
    expected = greedy(checkpoint, IDS, NUM_TOKENS, penalty=PENALTY)
    body = {"return_token_ids": True}
    choice = client.completions.create(model="tiny", prompt=PROMPT, extra_body=body).choices[0]
    assert choice.model_extra["token_ids"] == expected
    assert choice.finish_reason == "stop"  # at the file's own stop token
    with Client(state_dir=tuned.state_dir) as sdk:
        chunks = list(sdk.generate(PROMPT, max_tokens=16, prompt_logprobs=0))
    assert [entry.token_id for entry in chunks[0].prompt_logprobs] == IDS[1:]
    assert [token_id for chunk in chunks for token_id in chunk.token_ids] == expected
    own = client.completions.create(
        model="tiny",
        prompt=PROMPT,
        max_tokens=NUM_TOKENS,
        extra_body={**body, "repetition_penalty": 1.0, "ignore_eos": True},
    )
    assert own.choices[0].model_extra["token_ids"] == greedy(checkpoint, IDS, NUM_TOKENS) != expected
    talk = client.chat.completions.create(
        model="tiny", messages=[{"role": "user", "content": PROMPT}], extra_body={"ignore_eos": True}
    )
    assert talk.usage.completion_tokens == NUM_CHAT_TOKENS


def test_generation_config_can_be_turned_off(tmp_path: Path, tuned_checkpoint: Path, checkpoint: Path) -> None:
    options = ("--max-model-len", "512", "--no-profile", "--generation-config", "none", "--strict-fields")
    stack = RunningStack(tmp_path / "state", {"tiny": tuned_checkpoint}, *options).start()
    try:
        body = {"model": "tiny", "prompt": PROMPT, "max_tokens": NUM_TOKENS, "temperature": 0, "return_token_ids": True}
        choice = httpx.post(f"{stack.url}/v1/completions", json=body).json()["choices"][0]
        assert choice["token_ids"] == greedy(checkpoint, IDS, NUM_TOKENS)
        refused = httpx.post(f"{stack.url}/v1/completions", json={**body, "frobnicate": 1})
        assert (refused.status_code, refused.json()["error"]["param"]) == (400, "frobnicate")
    finally:
        stack.stop()


def test_a_bad_generation_config_is_named_before_anything_starts(tmp_path: Path, tuned_checkpoint: Path) -> None:
    (tmp_path / "generation_config.json").write_text('{"top_p": "most"}')
    stack = RunningStack(tmp_path / "state", {"tiny": tuned_checkpoint})
    result = stack.headway("up", "--model", str(tuned_checkpoint), "--generation-config", str(tmp_path))
    assert result.returncode != 0
    words = " ".join((result.stdout + result.stderr).split())
    assert "generation_config.json: top_p must be" in words
    assert "Traceback" not in words


@pytest.mark.parametrize("prompt", [IDS, LONG], ids=["short", "in chunks"])
def test_prompt_logprobs_are_those_of_transformers(
    client: openai.OpenAI, reference: PreTrainedModel, prompt: list[int]
) -> None:
    num_top = 4
    with torch.no_grad():
        expected = reference(torch.tensor([prompt])).logits[0].float().log_softmax(-1)
    for _ in range(2):  # the second time the prompt lies in the prefix cache
        answer = client.completions.create(
            model="tiny", prompt=prompt, max_tokens=1, extra_body={"prompt_logprobs": num_top, "return_token_ids": True}
        )
        choice = answer.choices[0].model_extra
        assert choice["prompt_token_ids"] == prompt
        first, *rest = choice["prompt_logprobs"]
        assert first is None
        assert len(rest) == len(prompt) - 1
        for row, token_id, entry in zip(expected, prompt[1:], rest, strict=False):
            best = row.topk(num_top)
            assert set(entry) == {str(token_id), *map(str, best.indices.tolist())}
            assert entry[str(token_id)]["rank"] == int((row > row[token_id]).sum()) + 1
            for key, value in entry.items():
                assert value["logprob"] == pytest.approx(row[int(key)].item(), abs=2e-4)
                assert value["rank"] == int((row > row[int(key)]).sum()) + 1
    assert answer.usage.prompt_tokens_details.cached_tokens == 0


def test_prompts_of_another_salt_are_computed_anew(client: openai.OpenAI) -> None:
    prompt = [7 + i * 13 % 400 for i in range(100)]

    def num_cached(**fields: object) -> int:
        answer = client.completions.create(model="tiny", prompt=prompt, max_tokens=1, extra_body=fields)
        return answer.usage.prompt_tokens_details.cached_tokens

    assert num_cached() == 0
    assert num_cached() == 96
    assert num_cached(cache_salt="a") == 0
    assert num_cached(cache_salt="b") == 0
    assert num_cached(cache_salt="a") == 96


def test_the_lowest_temperatures_are_greedy_and_spare_the_others(client: openai.OpenAI) -> None:
    def ask(temperature: float) -> openai.Stream:
        return client.completions.create(
            model="tiny", prompt=PROMPT, max_tokens=40, temperature=temperature, stream=True, seed=3,
            extra_body={"ignore_eos": True},
        )  # fmt: skip

    def text(stream: openai.Stream) -> str:
        return "".join(chunk.choices[0].text for chunk in stream)

    greedy, warm = text(ask(0.0)), text(ask(1.0))
    streams = [ask(1e-50), ask(1.0), ask(1e-38)]
    assert [text(stream) for stream in streams] == [greedy, warm, greedy]


def test_a_continued_answer_goes_on_where_it_was(client: openai.OpenAI) -> None:
    question = {"role": "user", "content": "What is headway?"}
    body = {"ignore_eos": True, "skip_special_tokens": False, "include_stop_str_in_output": True}
    whole = client.chat.completions.create(model="tiny", messages=[question], max_tokens=24, extra_body=body)
    start = whole.choices[0].message.content[:12]
    rest = client.chat.completions.create(
        model="tiny",
        messages=[question, {"role": "assistant", "content": start}],
        max_tokens=4,
        extra_body={**body, "continue_final_message": True, "return_token_ids": True},
    )
    shown = make_tokenizer().decode(rest.model_extra["prompt_token_ids"], skip_special_tokens=False)
    assert shown == f"<s><|user|>What is headway?</s><|assistant|>{start}"
