"""Groups, beams and what the KV cache is used for, through a whole stack of two workers with a host tier."""

import json
import threading
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import httpx
import openai
import pytest

from headway.client import Client
from headway.core.errors import CancelledError
from tests.integration.stack import RunningStack, wait_for

PROMPT = "Two trains leave at noon and meet at three. " * 4
OPTIONS = ("--workers", "2", "--max-model-len", "2048", "--swap-space", "64MiB", "--speculative-tokens", "4")


@pytest.fixture(scope="module")
def tiered(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("tiered"), {"tiny": checkpoint}, *OPTIONS, "--no-profile").start()
    yield running
    running.stop()


@pytest.fixture
def client(tiered: RunningStack) -> openai.OpenAI:
    return openai.OpenAI(base_url=f"{tiered.url}/v1", api_key="none", max_retries=0)


def document(stack: RunningStack, *arguments: str) -> Any:
    result = stack.headway(*arguments, "--json")
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


@contextmanager
def long_request(stack: RunningStack, request_id: str) -> Iterator[None]:
    """Many sequences that run meanwhile; they are cancelled at the end."""

    def read() -> None:
        with suppress(CancelledError):
            for _ in chunks:
                pass

    with Client(state_dir=stack.state_dir) as client:
        chunks = client.generate(PROMPT, n=32, max_tokens=1800, ignore_eos=True, request_id=request_id)
        next(chunks)
        reader = threading.Thread(target=read)
        reader.start()
        yield
    reader.join()


def test_samples_and_their_best_are_those_of_their_seeds(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "prompt": PROMPT, "max_tokens": 12, "temperature": 1.0, "logprobs": 0}
    samples = client.completions.create(**options, n=4, seed=7).choices
    alone = [client.completions.create(**options, seed=7 + i).choices[0].text for i in range(4)]
    assert [sample.text for sample in samples] == alone
    best = client.completions.create(**options, n=2, best_of=4, seed=7)

    def mean_logprob(choice: openai.types.CompletionChoice) -> float:
        logprobs = choice.logprobs.token_logprobs if choice.logprobs else None
        return sum(logprobs or []) / len(logprobs or [1])

    ranked = sorted(samples, key=mean_logprob, reverse=True)
    assert [choice.text for choice in best.choices] == [sample.text for sample in ranked[:2]]
    assert best.usage is not None
    assert best.usage.completion_tokens == 48


def test_a_beam_search_finds_what_is_at_least_as_likely_as_greedy(client: openai.OpenAI) -> None:
    options = {"model": "tiny", "prompt": PROMPT, "max_tokens": 8}
    beams = client.completions.create(**options, n=3, extra_body={"beam_width": 4, "ignore_eos": True})
    assert len({choice.text for choice in beams.choices}) == 3
    again = client.completions.create(
        **options, n=2, best_of=4, extra_body={"use_beam_search": True, "ignore_eos": True}
    )
    assert [choice.text for choice in again.choices] == [choice.text for choice in beams.choices[:2]]


def test_kv_top_and_show_tell_of_a_running_request(tiered: RunningStack) -> None:
    for request_id in ("first", "second", "third"):
        with long_request(tiered, request_id), ThreadPoolExecutor(3) as pool:
            view = pool.submit(tiered.headway, "kv", "show", request_id)
            shown = pool.submit(tiered.headway, "kv", "show", request_id, "--json")
            top = pool.submit(document, tiered, "kv", "top")
        usages = {usage["worker_id"]: usage for usage in top.result()}
        is_shown = [each.result().returncode for each in (view, shown)] == [0, 0]
        if is_shown and any(usage["num_running"] == 32 for usage in usages.values()):
            break  # else it had ended, or some of it, before the commands had started
    assert "shared with" in view.result().stdout
    (part,) = json.loads(shown.result().stdout)
    assert part["block_size"] == 16
    assert len(part["sequences"]) == 32
    first, *others = (sequence["blocks"] for sequence in part["sequences"])
    num_shared_blocks = part["sequences"][0]["num_prompt_tokens"] // 16
    assert num_shared_blocks > 0
    for blocks in others:
        assert [use["block_id"] for use in blocks[:num_shared_blocks]] == [
            use["block_id"] for use in first[:num_shared_blocks]
        ]
    assert all(len(use["shared_with"]) == 31 for use in first[:num_shared_blocks])
    usage = usages[part["worker_id"]]
    assert usage["num_running"] == 32
    assert usage["num_saved_blocks"] >= 31 * num_shared_blocks
    assert usage["num_free_host_blocks"] > 0
    assert usage["num_used_blocks"] + usage["num_cached_blocks"] + usage["num_free_blocks"] == usage["num_blocks"]


def test_a_request_that_has_ended_cannot_be_shown(tiered: RunningStack) -> None:
    result = tiered.headway("kv", "show", "never-was")
    assert result.returncode == 1
    assert "No worker runs the request 'never-was'" in result.stderr
    assert "tiny" in tiered.headway("kv", "top", "--once").stdout


def test_a_pinned_prefix_is_resident_everywhere_and_again_after_a_worker_restart(
    tiered: RunningStack, client: openai.OpenAI, tmp_path: Path
) -> None:
    text = "You are a station master who answers in timetables. " * 8
    file = tmp_path / "system.txt"
    file.write_text(text)
    result = tiered.headway("prefix", "pin", "--model", "tiny", "--file", str(file))
    assert result.returncode == 0, result.stderr
    (prefix,) = document(tiered, "prefix", "list")
    num_blocks = prefix["num_tokens"] // 16
    assert prefix["name"] == "system"
    assert [(holder["worker_id"], holder["num_blocks"]) for holder in prefix["holders"]] == [
        ("worker-0", num_blocks),
        ("worker-1", num_blocks),
    ]
    answer = client.completions.create(model="tiny", prompt=text + "When?", max_tokens=2)
    assert answer.usage is not None
    assert answer.usage.prompt_tokens_details is not None
    assert answer.usage.prompt_tokens_details.cached_tokens >= (num_blocks - 1) * 16

    tiered.kill("worker-0")

    def is_back() -> bool:
        usages = {usage["worker_id"]: usage for usage in document(tiered, "kv", "top")}
        return "worker-0" in usages and usages["worker-0"]["num_used_blocks"] == num_blocks

    wait_for(is_back, every_s=1.0)
    assert tiered.headway("prefix", "unpin", "system").returncode == 0
    assert document(tiered, "prefix", "list") == []
    assert {usage["num_used_blocks"] for usage in document(tiered, "kv", "top")} == {0}
    assert tiered.headway("prefix", "unpin", "system").returncode == 1


def test_a_host_tier_and_drafts_appear_in_plan_and_metrics(tiered: RunningStack) -> None:
    plan = document(tiered, "plan", "show")
    assert plan["assignments"][0]["num_host_blocks"] > 0
    assert plan["assignments"][0]["num_draft_tokens"] == 4
    processes = tiered.status()["controller"]["processes"]
    endpoint = next(process["metrics_endpoint"] for process in processes if process["name"] == "worker-1")
    metrics = httpx.get(f"http://{endpoint}/metrics").text
    for name in ("num_preemptions_total", "cpu_cache_usage_perc", "spec_decode_num_draft_tokens_total"):
        assert f"headway:{name}{{" in metrics
    assert 'kind="swap"' in metrics
