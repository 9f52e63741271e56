"""From a plan and workers to actions, and their order."""

import random
from collections.abc import Callable
from typing import Any

import pytest

from headway.controller.reconcile import Action, Work, reconcile, startable, work_of


def work(model: str, num_blocks: int = 100) -> Work:
    return Work(
        model=model,
        directory=f"/models/{model}",
        dtype="float32",
        num_blocks=num_blocks,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=256,
        enable_prefix_cache=True,
    )


A, B = work("a"), work("b")


def start(wanted: dict[str, Work], serving: dict[str, Work | None], busy: tuple[str, ...] = ()) -> list[str]:
    actions = reconcile(wanted, serving=serving)
    return [str(action) for action in startable(actions, wanted=wanted, serving=serving, busy=busy)]


def test_a_plan_becomes_the_work_of_each_worker(make_plan: Callable[..., Any]) -> None:
    plan = make_plan({"worker-0": "a", "worker-1": ("b", 200)})
    assert work_of(plan) == {"worker-0": work("a"), "worker-1": work("b", 200)}


def test_nothing_is_done_where_nothing_differs() -> None:
    assert reconcile({"w0": A}, serving={"w0": A}) == []


def test_workers_that_are_away_are_left_alone() -> None:
    assert reconcile({"w0": A, "w1": B}, serving={"w0": A}) == []


def test_empty_workers_are_loaded_all_at_once() -> None:
    assert start({"w0": A, "w1": B}, {"w0": None, "w1": None}) == [
        "w0: load a (100 blocks)",
        "w1: load b (100 blocks)",
    ]


def test_a_restarted_worker_is_loaded_again_while_the_other_serves() -> None:
    assert start({"w0": A, "w1": A}, {"w0": None, "w1": A}) == ["w0: load a (100 blocks)"]


def test_a_model_is_loaded_at_its_new_home_before_the_old_one_is_drained() -> None:
    wanted: dict[str, Work] = {"w1": A}
    assert start(wanted, {"w0": A, "w1": None}) == ["w1: load a (100 blocks)"]
    assert start(wanted, {"w0": A, "w1": None}, busy=("w1",)) == []
    assert start(wanted, {"w0": A, "w1": A}) == ["w0: drain a"]


def test_an_old_home_goes_on_while_the_new_one_is_away() -> None:
    assert start({"w1": A}, {"w0": A}) == []


def test_replicas_change_one_after_the_other() -> None:
    larger = work("a", 200)
    wanted = {"w0": larger, "w1": larger}
    assert start(wanted, {"w0": A, "w1": A}) == ["w0: reload a (200 blocks, before 100)"]
    assert start(wanted, {"w0": None, "w1": A}, busy=("w0",)) == []
    assert start(wanted, {"w0": larger, "w1": A}) == ["w1: reload a (200 blocks, before 100)"]


def test_the_worker_whose_model_is_served_elsewhere_changes_first() -> None:
    wanted = {"w0": B, "w1": work("a", 200), "w2": A}
    serving: dict[str, Work | None] = {"w0": B, "w1": A, "w2": B}
    assert start(wanted, serving) == ["w2: drain b, load a (100 blocks)"]


def test_workers_that_trade_models_do_so_one_by_one() -> None:
    assert start({"w0": B, "w1": A}, {"w0": A, "w1": B}) == ["w0: drain a, load b (100 blocks)"]


def test_a_trade_waits_for_workers_that_are_away() -> None:
    assert start({"w0": B, "w1": A, "w2": A}, {"w0": A, "w1": B}) == []


def test_a_model_that_is_not_wanted_any_more_is_drained_last() -> None:
    wanted = {"w0": A}
    assert start(wanted, {"w0": None, "w1": B}) == ["w0: load a (100 blocks)"]
    assert start(wanted, {"w0": A, "w1": B}) == ["w1: drain b"]


@pytest.mark.parametrize("seed", range(200))
def test_every_way_ends_at_the_plan_and_keeps_served_what_it_can(seed: int) -> None:
    """Plays actions out, each taking a while, from random beginnings to random plans."""
    generator = random.Random(seed)
    workers = [f"w{index}" for index in range(generator.randint(1, 5))]
    models = [work("a"), work("a", 200), work("b"), work("c")]
    wanted = {worker: generator.choice(models) for worker in workers if generator.random() < 0.8}
    serving: dict[str, Work | None] = {worker: generator.choice([*models, None]) for worker in workers}
    running: dict[str, Action] = {}
    num_replicas = {model: sum(w.model == model for w in wanted.values()) for model in "abc"}

    for _ in range(100):
        actions = startable(reconcile(wanted, serving=serving), wanted=wanted, serving=serving, busy=tuple(running))
        for action in actions:
            model = action.before.model if action.before else ""
            serving[action.worker_id] = None
            running[action.worker_id] = action
            served = {w.model for w in serving.values() if w}
            if model and num_replicas[model] > 1 and action.after and action.after.model == model:
                assert model in served, "a model with two homes lost its last replica to a reload"
        if not running:
            break
        worker_id = generator.choice(sorted(running))
        serving[worker_id] = running.pop(worker_id).after

    assert {worker: w for worker, w in serving.items() if w} == wanted
