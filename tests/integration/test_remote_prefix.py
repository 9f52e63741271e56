"""Prefixes that one worker holds and another one computes with: fetched where that is cheaper, and only there."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx
import pytest
import torch
from tokenizers import Tokenizer
from transformers import AutoModelForCausalLM

from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack, wait_for

NUM_PROMPTS = 6
NUM_OUTPUT = 12
# To compute the prefix takes a second: what is fetched has as long to come, and a slow machine takes some of that.
SIZES = {"large": {"hidden_size": 1024, "intermediate_size": 3072, "num_hidden_layers": 4}, "small": {}}
# Two blocks of a small model are computed in less than a call takes, however slow the machine.
NUM_PREFIX = {"large": 640, "small": 32}


def prefix_of(size: str) -> list[int]:
    return [5 + i * 11 % 400 for i in range(NUM_PREFIX[size])]


def prompts_of(size: str) -> list[list[int]]:
    return [[*prefix_of(size), *(7 + (i * 31 + j * 13) % 400 for j in range(20))] for i in range(NUM_PROMPTS)]


@pytest.fixture(scope="module", params=SIZES)
def size(request: pytest.FixtureRequest) -> str:
    return str(request.param)


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory, size: str) -> Path:
    directory = tmp_path_factory.mktemp(size) / "model"
    return make_checkpoint(directory, "llama", max_position_embeddings=1024, **SIZES[size])


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, size: str) -> Iterator[RunningStack]:
    """Two workers, whose predictions are estimates from the model's size, and who take turns: how many of a burst go to
    the one without the prefix depends on no speed."""
    state_dir = tmp_path_factory.mktemp(f"{size}-state")
    stack = RunningStack(state_dir, {"tiny": checkpoint}, "--workers", "2", "--no-profile")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("HEADWAY_POLICY", "round-robin")
        stack.start()
    yield stack
    stack.stop()


def ask(client: httpx.Client, prompt: list[int], **fields: object) -> str:
    body = {"model": "tiny", "prompt": prompt, "max_tokens": NUM_OUTPUT, "ignore_eos": True, "temperature": 0, **fields}
    response = client.post("/v1/completions", json=body)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def reference(checkpoint: Path, prompts: list[list[int]]) -> list[str]:
    """Greedy, by transformers."""
    model = AutoModelForCausalLM.from_pretrained(checkpoint, dtype=torch.float32).eval()
    tokenizer = Tokenizer.from_file(str(checkpoint / "tokenizer.json"))
    tokens = model.generate(
        torch.tensor(prompts), max_new_tokens=NUM_OUTPUT, min_new_tokens=NUM_OUTPUT, do_sample=False, eos_token_id=-1
    )
    return [tokenizer.decode(row[len(prompts[0]) :].tolist(), skip_special_tokens=True) for row in tokens]


def test_a_burst_with_one_prefix_fetches_it_once_if_that_pays(pair: RunningStack, checkpoint: Path, size: str) -> None:
    names = ("prefix_fetched_tokens_total", "kv_transfer_blocks_total", "prompt_tokens_total")
    before = [pair.metric(f"headway:{name}") for name in names]
    num_indexed = pair.metric("headway:prefix_index_blocks")
    prefix, prompts = prefix_of(size), prompts_of(size)
    # One client: those that are made request by request take longer to make than a worker to answer.
    with httpx.Client(base_url=pair.url, timeout=120) as client, ThreadPoolExecutor(NUM_PROMPTS) as pool:
        ask(client, [*prefix, 3])
        wait_for(lambda: pair.metric("headway:prefix_index_blocks") >= num_indexed + len(prefix) // 16)
        texts = list(pool.map(lambda prompt: ask(client, prompt), prompts))
    assert texts == reference(checkpoint, prompts)
    after = [pair.metric(f"headway:{name}") for name in names]
    num_fetched, num_moved, num_prompt_tokens = (now - then for now, then in zip(after, before, strict=True))
    num_blocks = num_moved / 2  # counted where they go out and where they come in
    if size == "large":
        assert (num_fetched, num_blocks) == (len(prefix), len(prefix) // 16)
        assert num_prompt_tokens < len(prefix) + 30 * (NUM_PROMPTS + 1)
    else:
        assert (num_fetched, num_blocks) == (0, 0)


@pytest.mark.parametrize("size", ["large"], indirect=True)
def test_a_salted_prefix_is_fetched_by_its_own_name(pair: RunningStack, checkpoint: Path, size: str) -> None:
    def fetched() -> float:
        return pair.metric("headway:prefix_fetched_tokens_total")

    prefix, prompts = prefix_of(size), prompts_of(size)
    num_before, num_blocks = fetched(), pair.settled_blocks()
    with httpx.Client(base_url=pair.url, timeout=120) as client, ThreadPoolExecutor(NUM_PROMPTS) as pool:
        ask(client, [*prefix, 3], cache_salt="mine")
        wait_for(lambda: pair.metric("headway:prefix_index_blocks") >= num_blocks + len(prefix) // 16)
        texts = list(pool.map(lambda prompt: ask(client, prompt, cache_salt="mine"), prompts))
    assert texts == reference(checkpoint, prompts)
    assert fetched() - num_before == len(prefix)
