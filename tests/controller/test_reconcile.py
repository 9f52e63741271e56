"""From a plan and workers to actions, and their order."""

import random
from collections.abc import Callable
from dataclasses import replace
from typing import Any, TypeAlias

import pytest

from headway.controller.reconcile import Action, load_orders_of, reconcile, startable
from headway.core.load_order import LoadOrder
from headway.core.parallel_config import ParallelConfig

Works: TypeAlias = dict[str, tuple[LoadOrder, ...]]


def work(model: str, *worker_ids: str, num_blocks: int = 100) -> LoadOrder:
    return LoadOrder(
        model=model,
        directory=f"/models/{model}",
        dtype="float32",
        num_blocks=num_blocks,
        block_size=16,
        max_num_seqs=8,
        max_num_batched_tokens=64,
        max_model_len=256,
        enable_prefix_cache=True,
        parallel=ParallelConfig(tp=len(worker_ids)),
        worker_ids=worker_ids,
        group_id=worker_ids[0].replace("w", "g"),
    )


def works(models: str, *, num_blocks: int = 100) -> Works:
    """`works("a:w0 b:w0 c:w1,w2")`: models a and b on w0, model c on w1 and w2 together."""
    found: Works = {}
    for model, worker_ids in (group.split(":") for group in models.split()):
        group = work(model, *worker_ids.split(","), num_blocks=num_blocks)
        found |= {worker_id: (*found.get(worker_id, ()), group) for worker_id in group.worker_ids}
    return found


def served(models: str, *empty: str) -> Works:
    """What workers serve, and those that serve nothing."""
    return {**works(models), **dict.fromkeys(empty, ())}


def start(wanted: Works, serving: Works, busy: tuple[str, ...] = ()) -> list[str]:
    actions = reconcile(wanted, serving=dict(sorted(serving.items())))
    return [str(action) for action in startable(actions, wanted=wanted, serving=serving, busy=busy)]


def test_a_plan_becomes_the_work_of_each_worker(make_plan: Callable[..., Any]) -> None:
    plan = make_plan({"worker-0": "a", "worker-1": ("b", 200)})
    expected = {"worker-0": work("a", "worker-0"), "worker-1": work("b", "worker-1", num_blocks=200)}
    assert load_orders_of(plan) == {
        worker_id: (replace(wanted, group_id=worker_id.replace("worker", "group")),)
        for worker_id, wanted in expected.items()
    }


def test_all_workers_of_a_group_have_one_work(make_plan: Callable[..., Any]) -> None:
    wanted = load_orders_of(make_plan({"worker-1,worker-0": "a"}))
    ((first,), (second,)) = wanted["worker-0"], wanted["worker-1"]
    assert first is second
    assert first.worker_ids == ("worker-1", "worker-0")
    assert first.leader == "worker-1"
    assert first.parallel == ParallelConfig(tp=2)


def test_nothing_is_done_where_nothing_differs() -> None:
    assert reconcile(works("a:w0 b:w1,w2"), serving=served("a:w0 b:w1,w2")) == []


def test_groups_of_which_a_worker_is_away_are_left_alone() -> None:
    assert reconcile(works("a:w0 b:w1"), serving=served("a:w0")) == []
    assert reconcile(works("a:w0 b:w1,w2"), serving=served("a:w0", "w1")) == []


def test_empty_workers_are_loaded_all_at_once() -> None:
    assert start(works("a:w0 b:w1 c:w2,w3"), served("", "w0", "w1", "w2", "w3")) == [
        "w0: load a (100 blocks)",
        "w1: load b (100 blocks)",
        "w2, w3: load c (100 blocks, tp 2)",
    ]


def test_a_restarted_worker_is_loaded_again_while_the_other_serves() -> None:
    assert start(works("a:w0 a:w1"), served("a:w1", "w0")) == ["w0: load a (100 blocks)"]


def test_a_group_of_which_one_worker_serves_nothing_is_loaded_whole() -> None:
    assert start(works("a:w0,w1"), served("", "w0", "w1")) == ["w0, w1: load a (100 blocks, tp 2)"]
    assert start(works("a:w0,w1"), served("a:w0,w1") | {"w1": ()}) == [
        "w0, w1: reload a (100 blocks, tp 2, before 100)"
    ]


def test_a_model_is_loaded_at_its_new_home_before_the_old_one_is_drained() -> None:
    wanted = works("a:w1")
    assert start(wanted, served("a:w0", "w1")) == ["w1: load a (100 blocks)"]
    assert start(wanted, served("a:w0", "w1"), busy=("w1",)) == []
    assert start(wanted, served("a:w0 a:w1")) == ["w0: drain a"]


def test_a_model_moves_from_a_worker_to_a_group_and_back_the_same_way() -> None:
    wanted = works("a:w1,w2")
    assert start(wanted, served("a:w0", "w1", "w2")) == ["w1, w2: load a (100 blocks, tp 2)"]
    assert start(wanted, served("a:w0 a:w1,w2")) == ["w0: drain a"]
    wanted = works("a:w0")
    assert start(wanted, served("a:w1,w2", "w0")) == ["w0: load a (100 blocks)"]
    assert start(wanted, served("a:w0 a:w1,w2")) == ["w1, w2: drain a"]


def test_an_old_home_goes_on_while_the_new_one_is_away() -> None:
    assert start(works("a:w1"), served("a:w0")) == []
    assert start(works("a:w1,w2"), served("a:w0", "w1")) == []


def test_replicas_change_one_after_the_other() -> None:
    wanted = works("a:w0 a:w1", num_blocks=200)
    assert start(wanted, served("a:w0 a:w1")) == ["w0: reload a (200 blocks, before 100)"]
    assert start(wanted, served("a:w1", "w0"), busy=("w0",)) == []
    assert start(wanted, {"w0": wanted["w0"], **served("a:w1")}) == ["w1: reload a (200 blocks, before 100)"]


def test_groups_of_different_models_change_at_the_same_time() -> None:
    wanted = works("a:w0 a:w1 b:w2 b:w3", num_blocks=200)
    assert start(wanted, served("a:w0 a:w1 b:w2 b:w3")) == [
        "w0: reload a (200 blocks, before 100)",
        "w2: reload b (200 blocks, before 100)",
    ]


def test_groups_change_one_after_the_other() -> None:
    wanted = works("a:w0,w1 a:w2,w3", num_blocks=200)
    assert start(wanted, served("a:w0,w1 a:w2,w3")) == ["w0, w1: reload a (200 blocks, tp 2, before 100)"]


def test_the_worker_whose_model_is_served_elsewhere_changes_first() -> None:
    wanted = works("b:w0 a:w2") | works("a:w1", num_blocks=200)
    assert start(wanted, served("b:w0 a:w1 b:w2")) == ["w2: drain b, load a (100 blocks)"]


def test_two_lone_workers_become_a_group_that_drains_both() -> None:
    assert start(works("c:w0,w1"), served("a:w0 b:w1")) == ["w0, w1: drain a, b, load c (100 blocks, tp 2)"]


def test_a_group_falls_apart_at_once_and_its_workers_wait_for_that() -> None:
    wanted, serving = works("b:w0 c:w1"), served("a:w0,w1")
    assert start(wanted, serving) == ["w0: drain a, load b (100 blocks)"]
    (first, second) = reconcile(wanted, serving=serving)
    assert set(first.involved) == set(second.involved) == {"w0", "w1"}
    assert start(wanted, serving, busy=first.involved) == []


def test_a_group_of_which_one_worker_is_wanted_ends_with_that_workers_change() -> None:
    assert start(works("b:w1"), served("a:w0,w1")) == ["w1: drain a, load b (100 blocks)"]


def test_a_group_that_is_loaded_anew_stays_together_and_one_that_goes_is_ended() -> None:
    (reload,) = reconcile(works("b:w0,w1"), serving=served("a:w0,w1"))
    assert reload.ended == ()
    (drain,) = reconcile({}, serving=served("a:w0,w1"))
    assert drain.ended == ("w0", "w1")
    (regroup,) = reconcile(works("b:w1,w0"), serving=served("a:w0,w1"))
    assert regroup.ended == ("w0", "w1")
    (alone,) = reconcile(works("b:w0"), serving=served("a:w0"))
    assert alone.ended == ()


def test_workers_that_trade_models_do_so_one_by_one() -> None:
    assert start(works("b:w0 a:w1"), served("a:w0 b:w1")) == ["w0: drain a, load b (100 blocks)"]


def test_a_trade_waits_for_workers_that_are_away() -> None:
    assert start(works("b:w0 a:w1 a:w2"), served("a:w0 b:w1")) == []


def test_a_model_that_is_not_wanted_any_more_is_drained_last() -> None:
    wanted = works("a:w0")
    assert start(wanted, served("b:w1", "w0")) == ["w0: load a (100 blocks)"]
    assert start(wanted, served("a:w0 b:w1")) == ["w1: drain b"]
    assert start(wanted, served("a:w0 b:w1,w2")) == ["w1, w2: drain b"]


def test_models_of_one_worker_are_loaded_one_after_the_other() -> None:
    wanted = works("a:w0 b:w0 c:w0 a:w1")
    assert start(wanted, served("", "w0", "w1")) == ["w0: load a (100 blocks)", "w1: load a (100 blocks)"]
    assert start(wanted, served("a:w0", "w1"), busy=("w1",)) == ["w0: load b (100 blocks)"]
    assert start(wanted, served("a:w0 c:w0 a:w1")) == ["w0: load b (100 blocks)"]
    assert reconcile(wanted, serving=served("c:w0 a:w0 b:w0 a:w1")) == []


def test_a_model_gives_way_to_another_beside_those_that_stay() -> None:
    serving = served("a:w0 b:w0")
    assert start(works("a:w0 c:w0"), serving) == ["w0: drain b, load c (100 blocks)"]
    assert start(works("a:w0"), serving) == ["w0: drain b"]
    changed = {"w0": (*works("a:w0")["w0"], *works("b:w0", num_blocks=200)["w0"])}
    assert start(changed, serving) == ["w0: reload b (200 blocks, before 100)"]


def test_what_moves_from_a_shared_worker_is_loaded_elsewhere_first() -> None:
    wanted = works("a:w0 b:w1")
    assert start(wanted, served("a:w0 b:w0", "w1")) == ["w1: load b (100 blocks)"]
    assert start(wanted, served("a:w0 b:w0 b:w1")) == ["w0: drain b"]


def random_groups(workers: list[str], *, largest: int, generator: random.Random) -> Works:
    """Groups of some of the workers, with some models; lone ones may have several."""
    rest, found = generator.sample(workers, len(workers)), Works()
    while rest:
        size = generator.randint(1, min(largest, len(rest)))
        members, rest = rest[:size], rest[size:]
        if generator.random() < 0.8:
            models = generator.sample("abc", generator.randint(1, 3 if size == 1 else 1))
            groups = [work(model, *members, num_blocks=generator.choice((100, 200))) for model in models]
            found |= dict.fromkeys(members, tuple(groups))
    return found


@pytest.mark.parametrize("seed", range(200))
@pytest.mark.parametrize("largest", [1, 3])
def test_every_way_ends_at_the_plan_and_keeps_served_what_it_can(largest: int, seed: int) -> None:
    """Plays actions out, each taking a while, from random beginnings to random plans."""
    generator = random.Random(seed)
    workers = [f"w{index}" for index in range(generator.randint(1, 6))]
    wanted = random_groups(workers, largest=largest, generator=generator)
    serving: Works = {
        **dict.fromkeys(workers, ()),
        **random_groups(workers, largest=largest, generator=generator),
    }
    running: list[Action] = []
    num_replicas = {model: len({w for ws in wanted.values() for w in ws if w.model == model}) for model in "abc"}

    for _ in range(200):
        busy = {worker_id for action in running for worker_id in action.involved}
        for action in startable(reconcile(wanted, serving=serving), wanted=wanted, serving=serving, busy=busy):
            assert busy.isdisjoint(action.involved), "two actions on one worker"
            busy |= set(action.involved)
            for name in action.involved:
                serving[name] = tuple(work for work in serving[name] if work not in action.before)
            serving |= dict.fromkeys(action.ended, ())
            running.append(action)
            models = {work.model for work in action.before}
            if largest == 1 and action.after is not None and models == {action.after.model}:
                left = {work.model for works in serving.values() for work in works}
                assert num_replicas[action.after.model] == 1 or models <= left, "its last replica went for a reload"
        if not running:
            break
        action = running.pop(generator.randrange(len(running)))
        if action.after is not None and not action.ended:
            for name in action.worker_ids:
                serving[name] = (*serving[name], action.after)

    assert {name: set(ws) for name, ws in serving.items() if ws} == {name: set(ws) for name, ws in wanted.items()}
