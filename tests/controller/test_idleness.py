"""For how long nobody has asked, on synthetic views of the router."""

from headway.controller.idleness import Idleness
from headway.controller.router_view import ModelSample, RouterView

NOBODY = ModelSample(num_arrived=3)


def view(sample: ModelSample = NOBODY, *, run_id: str = "first") -> RouterView:
    return RouterView(models={"chat": sample}, reporting=frozenset(), run_id=run_id)


def idle_s(*views: RouterView | None, every_s: float = 10.0) -> float:
    """After these views, one every so many seconds; None for none."""
    idleness, now_s = Idleness(), 0.0
    for each in views:
        now_s += every_s
        if each is not None:
            idleness.observe(each, models=["chat"], now_s=now_s)
    return idleness.idle_s("chat", now_s=now_s)


def test_time_counts_while_nobody_is_there_and_nobody_has_been() -> None:
    assert idle_s(view(), view(), view()) == 20
    assert idle_s(view(), view(), view(ModelSample(num_present=1, num_arrived=3))) == 0
    assert idle_s(view(), view(ModelSample(num_present=1, num_arrived=3)), view()) == 10, "it was there till then"
    assert idle_s(view(), view(ModelSample(num_arrived=4)), view(ModelSample(num_arrived=4))) == 10, "it came and went"


def test_a_model_that_was_never_asked_for_is_idle_since_it_was_looked_at() -> None:
    nothing = RouterView(models={}, reporting=frozenset(), run_id="first")
    assert idle_s(nothing, nothing) == 10


def test_what_is_not_known_is_no_idle_time() -> None:
    assert idle_s() == 0
    assert idle_s(view()) == 0
    assert idle_s(view(), view(), None, view()) == 0, "a gap"
    assert idle_s(view(), view(), None, None) == 0, "stale"
    assert idle_s(view(), view(), view(run_id="second")) == 0, "another router has counted"
    assert idle_s(view(run_id=""), view(run_id="")) == 0, "an older router does not count"
    assert idle_s(view(), None, view(), every_s=5.0) == 10, "a short gap"
