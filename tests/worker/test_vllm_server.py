"""What a worker tells of a vLLM server that it stands in for; needs none."""

import random

import pytest

from headway.core.request import FinishReason, GenerationRequest, SamplingParams
from headway.engine.events import BlockEventLog
from headway.worker.vllm_server.cache_mirror import CacheMirror
from headway.worker.vllm_server.exposition import cache_facts, read_load
from headway.worker.vllm_server.steps import Steps
from headway.worker.vllm_server.wire import body_of, is_given_up, num_cached_tokens_of, output_of

SIZE = 4
METRICS = """# TYPE vllm:cache_config_info gauge
vllm:cache_config_info{block_size="16",enable_prefix_caching="True",engine="0",num_gpu_blocks="101"} 1.0
# TYPE vllm:kv_cache_usage_perc gauge
vllm:kv_cache_usage_perc{engine="0"} 0.25
vllm:kv_cache_usage_perc{engine="1"} 0.75
# TYPE vllm:num_preemptions counter
vllm:num_preemptions_total{engine="0"} 3.0
# TYPE vllm:prefix_cache_queries counter
vllm:prefix_cache_queries_total{engine="0"} 1e+06
"""


def request(**fields: object) -> GenerationRequest:
    base: dict[str, object] = {
        "request_id": "r",
        "model": "m",
        "prompt_token_ids": (1, 2),
        "sampling": SamplingParams(),
    }
    return GenerationRequest(**base | fields)  # type: ignore[arg-type]


def test_a_servers_metrics_are_read() -> None:
    facts = cache_facts(METRICS)
    assert facts is not None
    assert (facts.num_blocks, facts.block_size, facts.has_prefix_cache) == (100, 16, True)
    load = read_load(METRICS)
    assert (load.kv_usage, load.num_preemptions, load.num_query_tokens) == (0.5, 3, 1_000_000)


@pytest.mark.parametrize("text", ["", METRICS.replace('"101"', '"None"'), "up 1\n"])
def test_a_server_that_tells_no_blocks_is_noticed(text: str) -> None:
    assert cache_facts(text) is None


def test_steps_are_told_apart_by_sequences_that_get_another_token() -> None:
    steps = Steps()
    steps.wake_up(10.0)
    assert steps.note("a", 1, now_s=10.5) is None
    steps.note_prompt(100, num_cached=60)
    assert steps.note("b", 1, now_s=10.51) is None
    steps.note_prompt(8, num_cached=0)
    first = steps.note("a", 1, now_s=10.6)
    assert first is not None
    assert (first.num_steps, first.num_sequences, first.num_decodes, first.num_prefill_tokens) == (1, 2, 0, 48)
    assert first.num_prefill_pairs == 40 * (60 + 20) + 8 * 4
    assert first.duration_s == pytest.approx(0.51)
    assert steps.note("b", 1, now_s=10.61) is None
    second = steps.note("b", 3, now_s=10.9)  # tokens of three steps at once
    assert second is not None
    assert (second.num_decodes, second.num_prefill_tokens) == (2, 0)
    assert second.duration_s == pytest.approx(0.1)
    last = steps.close()
    assert last is not None
    assert (last.num_steps, last.num_sequences, last.num_decodes) == (3, 1, 3)
    assert steps.close() is None


def test_the_mirror_never_holds_more_than_the_server_can_and_forgets_the_longest_unused() -> None:
    rng = random.Random(3)
    log = BlockEventLog()
    mirror = CacheMirror(log, num_blocks=10, block_size=SIZE)
    prompts = [[number] * 4 * SIZE + [9] for number in range(4)]
    for _ in range(100):
        prompt = rng.choice(prompts)
        mirror.store(prompt)
        assert mirror.num_found(prompt) == 4 * SIZE, "what was just computed is there"
        assert mirror.num_blocks == len(log.snapshot().blocks) <= 9, "one is partly full"
    mirror.store(prompts[0])
    mirror.store(prompts[1])
    mirror.store(prompts[2])
    assert [mirror.num_found(prompt) for prompt in prompts[:3]] == [SIZE, 4 * SIZE, 4 * SIZE], "last blocks go first"


def test_the_mirror_keeps_salts_apart_and_the_last_token_is_always_computed() -> None:
    mirror = CacheMirror(BlockEventLog(), num_blocks=10, block_size=SIZE)
    mirror.store([1] * 2 * SIZE, salt="one")
    assert mirror.num_found([1] * 2 * SIZE, salt="one") == SIZE
    assert mirror.num_found([1] * 2 * SIZE, salt="two") == 0


def test_a_server_without_a_prefix_cache_has_an_empty_mirror() -> None:
    mirror = CacheMirror(BlockEventLog(), num_blocks=10, block_size=SIZE, is_caching=False)
    mirror.store([1] * 2 * SIZE)
    assert mirror.num_blocks == 0


def test_a_request_goes_on_after_its_outputs() -> None:
    sampling = SamplingParams(max_tokens=10, min_tokens=4, temperature=1.0, seed=2**63 + 5, stop_token_ids=(7,))
    asked = request(output_token_ids=(3,), sampling=sampling, cache_salt="a/tenant@home")
    body = body_of(asked, num_left=9, eos_token_ids=(0,))
    assert body["token_ids"] == [1, 2, 3]
    own = body["sampling_params"]
    assert (own["max_tokens"], own["min_tokens"], own["seed"], own["stop_token_ids"]) == (9, 3, 5, [7, 0])
    assert not set(body["cache_salt"]) & set("@/\\"), "vLLM refuses those"
    assert "cache_salt" not in body_of(request(), num_left=9, eos_token_ids=())


def test_a_chunk_becomes_an_output() -> None:
    top = [{"token_id": 4, "logprob": -0.1, "rank": 1}, {"token_id": 7, "logprob": -2.5, "rank": 2}]
    content = [{"token_id": 7, "logprob": -2.5, "rank": 2, "top_logprobs": top}]
    choice = {"index": 0, "token_ids": [7], "finish_reason": "stop", "logprobs": {"content": content}}
    output = output_of(request(sampling=SamplingParams(num_logprobs=1)), choice)
    assert (output.token_ids, output.finish_reason, output.stop_token_id) == ((7,), FinishReason.STOP, 7)
    (entry,) = output.logprobs
    assert (entry.token_id, entry.rank, entry.top) == (7, 2, ((4, -0.1),))
    assert output_of(request(), {"token_ids": [7], "finish_reason": None, "logprobs": None}).finish_reason is None


@pytest.mark.parametrize(("reason", "expected"), [(None, False), ("stop", False), ("length", False), ("abort", True)])
def test_a_sequence_that_the_server_gives_up_is_told_from_one_that_ends(reason: str | None, *, expected: bool) -> None:
    assert is_given_up({"finish_reason": reason}) is expected


@pytest.mark.parametrize(
    ("chunk", "expected"),
    [
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": {"cached_tokens": 4}}}, 4),
        ({"usage": {"prompt_tokens": 5, "prompt_tokens_details": None}}, None),
        ({}, None),
    ],
)
def test_cached_tokens_are_told_or_not(chunk: dict[str, object], expected: int | None) -> None:
    assert num_cached_tokens_of(chunk) == expected
