"""Prompts computed by one worker and gone on with at another one: clients notice nothing."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.checkpoints import make_checkpoint
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import WAYS, Stream

PREFILL, DECODE = "worker-0", "worker-1"
SCHEMA = {"type": "object", "properties": {"a": {"type": "integer"}}, "required": ["a"]}
FORMS: dict[str, dict[str, Any]] = {
    "greedy": {"temperature": 0},
    "seeded": {"temperature": 0.8, "seed": 7, "top_p": 0.9},
    "two samples": {"temperature": 0.8, "seed": 9, "n": 2},
    "logprobs": {"temperature": 0, "logprobs": 3},
    "prompt logprobs": {"temperature": 0, "logprobs": 1, "echo": True},
    "stop string": {"temperature": 0, "ignore_eos": False, "stop": ["e", "t"]},
    "guided": {"temperature": 0.8, "seed": 3, "ignore_eos": False, "guided_json": SCHEMA},
    "penalties": {"temperature": 0.7, "seed": 5, "presence_penalty": 0.5, "repetition_penalty": 1.2},
    "beams": {"n": 2, "use_beam_search": True, "temperature": 0, "max_tokens": 20},
    "one token": {"temperature": 0, "max_tokens": 1},
}


def prompt(form: str) -> list[int]:
    """Of several chunks; each form has its own."""
    start = 7 * list(FORMS).index(form)
    return [5 + (start + i * 11) % 240 for i in range(300)]


def ask(stack: RunningStack, form: str) -> list[dict[str, Any]]:
    body = {"model": "tiny", "prompt": prompt(form), "max_tokens": 1200, "ignore_eos": True} | FORMS[form]
    response = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=120)
    assert response.status_code == 200, response.text
    return [told(choice) for choice in response.json()["choices"]]


def told(choice: dict[str, Any]) -> dict[str, Any]:
    """What an answer says, without what differs between stacks."""
    logprobs = choice.get("logprobs") or {"tokens": [], "token_logprobs": []}
    values = [value for value in logprobs["token_logprobs"] if value is not None]
    kept = {name: choice[name] for name in ("index", "text", "finish_reason")}
    return kept | {"tokens": logprobs["tokens"], "values": values}


def check_equal(found: dict[str, list[dict[str, Any]]], expected: dict[str, list[dict[str, Any]]]) -> None:
    """Sums differ in their last bits with what else is in a batch."""
    for form, choices in expected.items():
        wanted = [choice | {"values": pytest.approx(choice["values"], abs=1e-3)} for choice in choices]
        assert found[form] == wanted, form


def ask_all(stack: RunningStack) -> dict[str, list[dict[str, Any]]]:
    with ThreadPoolExecutor(len(FORMS)) as pool:
        return dict(zip(FORMS, pool.map(lambda form: ask(stack, form), FORMS), strict=True))


def read_streams(stack: RunningStack) -> dict[str, list[str]]:
    with ThreadPoolExecutor(8) as pool:
        running = {name: Stream(stack, pool, **way).texts for name, way in WAYS.items()}
        return {name: texts.result() for name, texts in running.items()}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    directory = tmp_path_factory.mktemp("model") / "tiny"
    return make_checkpoint(directory, "llama", max_position_embeddings=2048, num_hidden_layers=6)


@pytest.fixture(scope="module")
def expected(
    tmp_path_factory: pytest.TempPathFactory, checkpoint: Path
) -> tuple[dict[str, list[dict[str, Any]]], dict[str, list[str]]]:
    """What one worker answers, and streams."""
    stack = RunningStack(tmp_path_factory.mktemp("lone"), {"tiny": checkpoint}, "--no-profile").start()
    try:
        return ask_all(stack), read_streams(stack)
    finally:
        stack.stop()


@pytest.fixture(scope="module")
def split(tmp_path_factory: pytest.TempPathFactory, checkpoint: Path, expected: object) -> Iterator[RunningStack]:
    options = ("--prefill-workers", "1", "--decode-workers", "1", "--max-num-batched-tokens", "128", "--no-profile")
    stack = RunningStack(tmp_path_factory.mktemp("split"), {"tiny": checkpoint}, *options).start()
    yield stack
    stack.stop()


@pytest.fixture
def ready(split: RunningStack) -> RunningStack:
    split.wait_until_ready()
    wait_for(lambda: num_serving(split) == 2, every_s=0.5)
    return split


def num_serving(stack: RunningStack) -> int:
    """Groups that are ready, and of whose role the router knows, as it knows of their steps, from the plan."""
    groups = stack.status()["fleet"].get("groups", ())
    return sum(group.get("state") == "ready" and bool(group.get("latency")) for group in groups)


def until_handed_over(stack: RunningStack, token_ids: list[int]) -> None:
    """Waits until a prompt goes to the decode worker: a prefill worker takes a while to find one that was started
    anew."""
    before = stack.metric("headway:prefill_handoffs_total")
    body = {"model": "tiny", "prompt": token_ids, "max_tokens": 1200, "ignore_eos": True}

    def has_gone() -> bool:
        assert httpx.post(f"{stack.url}/v1/completions", json=body, timeout=120).status_code == 200
        return stack.metric("headway:prefill_handoffs_total") > before

    wait_for(has_gone)


def test_answers_are_those_of_one_worker(ready: RunningStack, expected: tuple[Any, Any]) -> None:
    names = [
        ("prefill_handoffs", ""),
        ("kv_transfer_blocks", DECODE),
        ("prompt_tokens", PREFILL),
        ("prompt_tokens", DECODE),
    ]

    def totals() -> list[float]:
        return [ready.metric(f"headway:{name}_total", of=of) for name, of in names]

    until_handed_over(ready, prompt("greedy")[::-1])
    before = totals()
    check_equal(ask_all(ready), expected[0])
    num_gone, num_blocks, num_here, num_there = (now - then for now, then in zip(totals(), before, strict=True))
    num_long = 5  # of the others some end before they have gone
    assert num_gone >= num_long
    assert num_blocks >= 16 * num_long
    num_prompt_tokens = sum(len(prompt(form)) for form in FORMS)
    assert num_here >= 0.9 * num_prompt_tokens
    assert num_there < 0.2 * num_prompt_tokens
    assert ready.metric("headway:streams_migrated_total") == 0


def test_a_prompt_that_the_decode_worker_holds_is_not_brought_again(ready: RunningStack) -> None:
    until_handed_over(ready, prompt("greedy"))
    ready.settled_blocks()
    before = ready.metric("headway:kv_transfer_blocks_total", of=DECODE)
    ask(ready, "greedy")
    assert ready.metric("headway:kv_transfer_blocks_total", of=DECODE) - before <= 4


def test_roles_are_shown(ready: RunningStack) -> None:
    assert "group-0 (prefill)" in ready.headway("status").stdout
    assert "group-1 (decode)" in ready.headway("status").stdout
    assert "on worker-0 (group-0), prefill only" in ready.headway("plan", "show").stdout


def test_streams_that_are_cancelled_leave_nothing_behind(ready: RunningStack) -> None:
    body = {"model": "tiny", "prompt": prompt("greedy"), "max_tokens": 1500, "ignore_eos": True, "stream": True}
    for num_lines in (1, 3, 60):
        with httpx.stream("POST", f"{ready.url}/v1/completions", json=body, timeout=60) as response:
            lines = response.iter_lines()
            for _ in range(num_lines):
                next(lines)

    def is_idle() -> bool:
        fleet = ready.status()["fleet"]
        return not int(fleet.get("num_in_flight", 0)) and not any(g.get("num_running") for g in fleet["groups"])

    wait_for(is_idle, every_s=0.3)


@pytest.mark.parametrize(("victim", "num_events"), [(PREFILL, 1), (DECODE, 1), (DECODE, 40)])
def test_kill_9_loses_nothing(ready: RunningStack, expected: tuple[Any, Any], victim: str, num_events: int) -> None:
    pid = ready.pid(victim)
    with ThreadPoolExecutor(8) as pool:
        streams = {name: Stream(ready, pool, num_events=num_events, **way) for name, way in WAYS.items()}
        for stream in streams.values():
            stream.wait()
        assert ready.kill(victim) == pid
        assert {name: stream.texts.result() for name, stream in streams.items()} == expected[1]
    wait_for(lambda: ready.pid(victim) != pid, every_s=0.3)
