"""Placements on five emulated V100s that are made anew by the traffic."""

import json
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.placements import apply, embed, export, placed_stack, put, where, write_placement
from tests.integration.stack import RunningStack, wait_for


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with placed_stack(tmp_path_factory.mktemp("replanning")) as running:
        yield running


def test_the_hot_model_gets_more_workers_once_the_traffic_has_shifted(stack: RunningStack, tmp_path: Path) -> None:
    """Objectives of twice its latency, and bursts of twelve at once."""
    cold = tmp_path / "cold.json"
    write_placement(cold, ("1x1", "slow"), ("1x1", "two"), ("1x1", "two"), ("1x1", "two"), ("1x1", "two"), slo_scale=2)
    apply(stack, cold)
    assert len(where(stack)["slow"]) == 1
    assert embed(stack, "slow")
    wait_for(lambda: export(stack))
    since = len(export(stack))
    with httpx.Client(base_url=stack.url, timeout=60) as client, ThreadPoolExecutor(12) as pool:
        body = {"model": "slow", "input": "a b c"}
        for _ in range(4):
            asked = pool.map(lambda _: client.post("/v1/embeddings", json=body), range(12))
            assert {response.status_code for response in asked} <= {200, 429, 504}  # refused, or given up
    wait_for(lambda: len(export(stack)) >= since + 48)
    options = ("--window", "10m", "--time-limit", "3", "--json")
    tried = json.loads(stack.headway("replan", "--once", "--dry-run", *options, timeout_s=120).stdout)
    assert tried["verdict"] == "proposed", tried
    assert len(where(stack)["slow"]) == 1
    told = stack.headway("replan", "--once", *options, timeout_s=120)
    decision = json.loads(told.stdout)
    assert decision["verdict"] == "applied", told
    assert decision["attainment_after"] > decision["attainment_before"] + 0.01
    wait_for(lambda: len(where(stack)["slow"]) > 1, timeout_s=60)
    wait_for(lambda: stack.status()["controller"]["ready"], timeout_s=60)
    again = json.loads(stack.headway("replan", "--once", *options, timeout_s=120).stdout)
    assert again["verdict"] == "kept", again


def test_the_duty_goes_on_after_a_restart_of_the_controller_and_ends_when_it_is_told_to(
    stack: RunningStack, tmp_path: Path
) -> None:
    put(stack, tmp_path, ("1x1", "one"), ("1x1", "two"))

    def status() -> Any:
        result = stack.headway("replan", "--status", "--json")
        assert result.returncode == 0, result.stderr
        return json.loads(result.stdout)

    def is_found() -> bool:
        return stack.headway("replan", "--status").returncode == 0

    told = len(status()["decisions"])
    assert stack.headway("replan", "--every", "2s", "--window", "1h", "--time-limit", "1").returncode == 0
    wait_for(lambda: len(status()["decisions"]) > told, timeout_s=60)
    gone = stack.kill("controller")
    wait_for(lambda: stack.status()["controller"]["ready"] and stack.pid("controller") != gone, timeout_s=60)
    wait_for(is_found)
    told = len(status()["decisions"])
    wait_for(lambda: len(status()["decisions"]) > told, timeout_s=60)
    assert "Every 2.0 s for the traffic" in stack.headway("replan", "--status").stdout
    assert stack.headway("replan", "--off").returncode == 0
    assert "replacement" not in status()
    wrong = stack.headway("replan", "--once", "--off")
    assert wrong.returncode == 1
    assert "Give one of" in wrong.stderr
