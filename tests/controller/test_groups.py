"""Who runs together, and who waits for mates that will not come."""

from headway.controller.groups import GroupRun, broken, mates

PAIR = ("w0", "w1")


def runs(**epochs: str) -> dict[str, GroupRun]:
    return {name: GroupRun(worker_ids=PAIR if epoch else (), epoch=epoch) for name, epoch in epochs.items()}


def test_a_lone_worker_has_no_mates() -> None:
    assert mates("w0", runs(w0="", w1="")) == ()
    assert broken(runs(w0="", w1="")) == ()


def test_mates_are_those_of_the_same_run() -> None:
    assert mates("w0", runs(w0="x", w1="x")) == ("w1",)
    assert mates("w1", runs(w0="x", w1="x")) == ("w0",)
    assert mates("w1", runs(w0="y", w1="x")) == ()
    assert mates("w7", runs(w0="x", w1="x")) == ()


def test_a_run_is_broken_where_a_mate_was_started_anew_or_is_in_another_run() -> None:
    assert broken(runs(w0="x", w1="x")) == ()
    assert broken(runs(w0="", w1="x")) == ("w1",)
    assert broken(runs(w0="x", w1="")) == ("w0",)
    assert broken(runs(w0="x", w1="y")) == ("w0", "w1")


def test_nothing_is_known_of_a_run_while_a_mate_is_away() -> None:
    assert broken(runs(w1="x")) == ()


def test_all_ranks_of_a_large_group_are_mates() -> None:
    names = tuple(f"w{rank}" for rank in range(8))
    group = {name: GroupRun(worker_ids=names, epoch="x") for name in names}
    assert mates("w5", group) == (*names[:5], *names[6:])
    assert broken(group) == ()
    assert broken({**group, "w5": GroupRun()}) == (*names[:5], *names[6:])
