"""One model over several workers along two axes at once, as users run it: what it answers, and what is seen of it.

Each axis alone, and what else a layout may be, is compared with one worker in tests/parallel and tests/worker.
"""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest

from headway.client import Client
from tests.checkpoints import make_checkpoint
from tests.integration.crowd import KINDS, Answer, ask_all
from tests.integration.stack import RunningStack, wait_for

NUM_BLOCKS = 60
# Of a worker: its layers of the model's five, of half of the blocks. They are too few for all that is asked at once.
LAYOUT = ("--stage-layers", "3,2", "--cp", "2", "--cp-ffn", "tensor", "--kv-cache-memory", "360KiB")
OPTIONS = ("--max-model-len", "768", "--threads", "1", "--memory", "1GiB", "--no-profile")


@pytest.fixture(scope="module")
def deep(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A tiny Qwen3 of five layers."""
    return make_checkpoint(tmp_path_factory.mktemp("deep"), "qwen3", num_hidden_layers=5, max_position_embeddings=1024)


@pytest.fixture(scope="module")
def expected(tmp_path_factory: pytest.TempPathFactory, deep: Path) -> dict[str, list[Answer]]:
    """What one worker answers, with room for all."""
    alone = RunningStack(tmp_path_factory.mktemp("alone"), {"deep": deep}, *OPTIONS).start()
    try:
        return ask_all(alone, "deep")
    finally:
        alone.stop()


@pytest.fixture(scope="module")
def layout(tmp_path_factory: pytest.TempPathFactory, deep: Path, expected: Any) -> Iterator[RunningStack]:
    running = RunningStack(tmp_path_factory.mktemp("layout"), {"deep": deep}, *OPTIONS, *LAYOUT).start()
    yield running
    running.stop()


def usage(stack: RunningStack) -> dict[str, Any]:
    [used] = json.loads(stack.headway("kv", "top", "--json").stdout)
    assert isinstance(used, dict)
    return used


def test_a_crowd_gets_the_answers_of_one_worker_and_leaves_nothing(
    layout: RunningStack, expected: dict[str, list[Answer]]
) -> None:
    answers = ask_all(layout, "deep")
    wrong = {
        (kind, index): (answer.texts, wanted.texts)
        for kind in KINDS
        for index, (answer, wanted) in enumerate(zip(answers[kind], expected[kind], strict=True))
        if not answer.is_close_to(wanted)
    }
    assert wrong == {}
    wait_for(lambda: usage(layout)["num_running"] + usage(layout)["num_used_blocks"] == 0)
    after = usage(layout)
    assert after["num_cached_blocks"] + after["num_free_blocks"] == NUM_BLOCKS
    assert after["num_recompute_preemptions"] > 0


def test_the_sdk_streams_from_a_group(layout: RunningStack, expected: dict[str, list[Answer]]) -> None:
    with Client(state_dir=layout.state_dir) as client:
        chunks = client.generate("trains run", max_tokens=48, temperature=0, ignore_eos=True)
        assert "".join(chunk.text for chunk in chunks) == expected["greedy"][0].texts[0]


def test_every_rank_is_shown_with_its_part_and_counts_what_it_sends(layout: RunningStack) -> None:
    assert layout.headway("generate", "trains run", "--max-tokens", "4").returncode == 0
    status = layout.status()["controller"]
    num_ranks = len(status["workers"])
    shown = layout.headway("status").stdout
    explained = layout.headway("plan", "explain").stdout
    for worker in status["workers"]:
        assert f"(rank {worker.get('rank', 0)} of {num_ranks}" in shown
        assert f"{worker['worker_id']} has layer" in explained
    axes = set()
    for process in status["processes"]:
        if process["kind"] == "worker":
            text = httpx.get(f"http://{process['metrics_endpoint']}/metrics", timeout=5).text
            sent = [line for line in text.splitlines() if line.startswith("headway:collective_calls_total")]
            assert sent, process["name"]
            axes |= {axis for axis in ("tensor", "cache", "pipeline") if any(f'axis="{axis}"' in line for line in sent)}
    parallel = json.loads(layout.headway("plan", "show", "--json").stdout)["assignments"][0]["parallel"]
    assert (parallel["pp"], parallel["cp"], parallel["cp_ffn"]) == (2, 2, "tensor")
    assert axes == {"cache", "pipeline", "tensor"}
