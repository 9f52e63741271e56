"""Placements on five emulated V100s: applied while requests come, and kept."""

import json
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.integration.placements import (
    apply,
    constant_requests,
    embed,
    export,
    placed_stack,
    put,
    where,
    write_placement,
)
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import Stream


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    with placed_stack(tmp_path_factory.mktemp("apply")) as running:
        yield running


FIRST = (("1x1", "tiny one"), ("1x1", "two four"), ("2x1", "three"))
SECOND = (("1x1", "tiny two"), ("1x1", "one four"), ("1x1", "three"))


def kinds(document: Any) -> Counter[str]:
    return Counter(f"{change['kind']} {change['model']}" for change in document["changes"])


def settled_export(stack: RunningStack) -> list[dict[str, str]]:
    """Once all that was asked before is in it, which is something: arrivals are written every half second."""
    wait_for(lambda: export(stack))
    rows = export(stack)
    while True:
        time.sleep(0.6)
        rows, before = export(stack), rows
        if rows == before:
            return rows


def test_what_cannot_be_applied_is_refused_and_nothing_changes(stack: RunningStack, tmp_path: Path) -> None:
    put(stack, tmp_path, *[("1x1", "tiny")] * 5)
    before = stack.status()["controller"]["plan_id"]
    write_placement(tmp_path / "many.json", *[("1x1", "tiny")] * 6)
    write_placement(tmp_path / "full.json", ("1x1", " ".join(f"bert-{number}" for number in range(5))))
    told = {
        "many.json": "needs 6 workers with V100-16; of these there are 5 (all workers: 5 x V100-16, emulated)",
        "full.json": "'bert-3' fits no worker",
        "no-such-plan": "There is no plan 'no-such-plan'",
    }
    for name, expected in told.items():
        result = stack.headway("apply", str(tmp_path / name) if name.endswith("json") else name, "--yes")
        assert result.returncode == 1
        assert expected in result.stderr
        assert "Traceback" not in result.stderr
    write_placement(tmp_path / "fine.json", ("1x1", "tiny"))
    asked = stack.headway("apply", str(tmp_path / "fine.json"))
    assert asked.returncode == 1
    assert "Give --yes" in asked.stderr
    unlike = apply(stack, tmp_path / "fine.json", "--dry-run")
    assert kinds(unlike) == {"keep tiny": 1, "drain tiny": 4}
    assert unlike["differences"] == []
    document = json.loads((tmp_path / "fine.json").read_text())
    document["problem"] |= {"queue_policy": "fcfs", "answer_overhead_s": 0.005}
    (tmp_path / "other.json").write_text(json.dumps(document))
    policy, overhead = apply(stack, tmp_path / "other.json", "--dry-run")["differences"]
    assert policy.startswith("planned with --queue-policy fcfs, the stack has least-slack: start it with the plan's")
    assert overhead.startswith("planned with --answer-overhead 5.0 ms, the stack counts 0 us")
    assert stack.status()["controller"]["plan_id"] == before


def test_models_move_while_requests_come_and_each_gets_its_answer(stack: RunningStack, tmp_path: Path) -> None:
    """Two of them trade places; a pipeline of two comes and becomes a lone worker."""
    put(stack, tmp_path, *[("1x1", "tiny")] * 5)
    first, second = tmp_path / "first.json", tmp_path / "second.json"
    write_placement(first, *FIRST)
    write_placement(second, *SECOND)
    with ThreadPoolExecutor() as pool:
        alone = Stream(stack, pool, temperature=0, max_tokens=400, num_events=1)
        answer = alone.texts.result(timeout=60)
        streams = [Stream(stack, pool, temperature=0, max_tokens=400, num_events=20) for _ in range(4)]
        for stream in streams:
            stream.wait()
        assert kinds(apply(stack, first))["drain tiny"] == 4
        assert [stream.texts.result(timeout=60) for stream in streams] == [answer] * 4
        before = where(stack)
        assert sorted(map(len, before["three"])) == [2]
        with constant_requests(stack, "tiny", "one", "two", "three") as answered:
            stream = Stream(stack, pool, temperature=0, max_tokens=400, num_events=20)
            stream.wait()
            changed = apply(stack, second)
            assert stream.texts.result(timeout=60) == answer
        assert all(count > 5 for count in answered.values())
    after = where(stack)
    assert after["one"] == before["two"]
    assert after["two"] == before["one"]
    assert not any(change["pauses"] for change in changed["changes"])
    assert kinds(changed)["keep tiny"] == 1
    again = apply(stack, "placement-second")
    assert set(kinds(again)) == {f"keep {name}" for name in ("tiny", "one", "two", "three", "four")}


def test_an_applied_placement_outlives_workers_and_the_controller(stack: RunningStack, tmp_path: Path) -> None:
    put(stack, tmp_path, *SECOND)
    plan = stack.status()["plan"]
    assert plan["placement_id"] == "placement-put"
    (home,) = where(stack)["one"]
    stack.kill(home[0])
    stack.kill("controller")
    wait_for(lambda: stack.status()["controller"]["ready"], timeout_s=60)
    stack.wait_until_ready()
    again = stack.status()["plan"]
    for name in ("placement_id", "models", "workers", "assignments"):  # not its id: it may have been revised
        assert again[name] == plan[name]
    assert embed(stack, "one")


def test_the_record_is_what_was_sent_also_what_was_refused_and_before_a_crash(
    stack: RunningStack, tmp_path: Path
) -> None:
    put(stack, tmp_path, *SECOND)
    assert embed(stack, "one")  # an empty record cannot be exported
    before = settled_export(stack)
    for _ in range(3):
        embed(stack, "one")
    hurried = {"x-headway-slo-ttft-ms": "1"}
    body = {"model": "two", "input": "a b c"}
    refused = httpx.post(f"{stack.url}/v1/embeddings", json=body, headers=hurried, timeout=60)
    assert refused.status_code == 429
    written = {"model": "tiny", "prompt": "the headway", "max_tokens": 7, "temperature": 0}
    assert httpx.post(f"{stack.url}/v1/completions", json=written, timeout=60).status_code == 200
    wait_for(lambda: len(export(stack)) >= len(before) + 5)
    wait_for(lambda: export(stack)[-1]["output_tokens"] == "7")
    stack.kill("router")
    rows = export(stack)
    assert rows[: len(before)] == before
    assert [(row["model"], row["slo_ms"], row["output_tokens"]) for row in rows[len(before) :]] == [
        *[("one", "60000", "0")] * 3,
        ("two", "1", ""),
        ("tiny", "", "7"),
    ]
    assert [float(row["at_s"]) for row in rows] == sorted(float(row["at_s"]) for row in rows)
    wait_for(lambda: httpx.post(f"{stack.url}/v1/embeddings", json=body, timeout=60).status_code == 200)
