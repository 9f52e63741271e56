"""What a plan changes, predicted by going its way."""

from dataclasses import replace

from headway.controller.changes import changes_to, paused_models
from headway.controller.reconcile import reconcile, startable
from tests.controller.test_reconcile import Works, works

MEMORY = {f"w{index}": 100 for index in range(6)}


def sized(found: Works, num_bytes: int) -> Works:
    return {
        worker_id: tuple(replace(work, memory_bytes=(num_bytes,) * len(work.worker_ids)) for work in of_worker)
        for worker_id, of_worker in found.items()
    }


def told(wanted: Works, serving: Works) -> list[str]:
    changes = changes_to(wanted, serving=serving, memory_bytes=MEMORY)
    return [f"{c.kind} {c.model} {','.join(c.worker_ids)}{' pauses' if c.pauses else ''}" for c in changes]


def test_kept_loaded_reloaded_and_drained_are_told_apart() -> None:
    serving = {**sized(works("a:w0 b:w1 c:w2,w3"), 40), "w4": ()}
    wanted = sized({**works("a:w0 d:w1 c:w2,w3 e:w4"), **works("f:w5", num_blocks=5)}, 40)
    assert told(wanted, {**serving, **sized(works("f:w5"), 40)}) == [
        "keep a w0",
        "load d w1",
        "keep c w2,w3",
        "load e w4",
        "reload f w5 pauses",
        "drain b w1",
    ]


def test_models_that_trade_places_pause_only_where_memory_has_no_room_for_both() -> None:
    trade, before = works("b:w0 a:w1"), works("a:w0 b:w1")
    assert paused_models(sized(trade, 40), serving=sized(before, 40), memory_bytes=MEMORY) == frozenset()
    assert paused_models(sized(trade, 60), serving=sized(before, 60), memory_bytes=MEMORY) != frozenset()
    moved = works("a:w2 b:w1")
    assert paused_models(sized(moved, 60), serving={**sized(before, 60), "w2": ()}, memory_bytes=MEMORY) == frozenset()


def test_what_fits_is_loaded_beside_what_is_to_go_and_that_goes_afterwards() -> None:
    wanted, serving = sized(works("b:w0"), 50), sized(works("a:w0"), 50)
    (load, drain) = reconcile(wanted, serving=serving, memory_bytes=MEMORY)
    assert (load.before, drain.before) == ((), serving["w0"])
    assert startable([load, drain], wanted=wanted, serving=serving, busy=()) == [load]
    (tight,) = reconcile(sized(works("b:w0"), 51), serving=serving, memory_bytes=MEMORY)
    assert tight.before == serving["w0"]


def test_another_version_of_a_model_takes_its_place_and_a_group_has_others_beside() -> None:
    wanted = sized(works("a:w0 c:w1,w2", num_blocks=5), 10)
    serving = sized(works("a:w0 b:w1,w2"), 10)
    assert [a.before for a in reconcile(wanted, serving=serving, memory_bytes=MEMORY)] == [
        serving["w0"],
        (),
        serving["w1"],
    ]
