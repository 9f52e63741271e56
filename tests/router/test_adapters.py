"""Requests with an adapter go where it is loaded, unless that is too busy."""

from tests.router.stage import Stage


def stage() -> Stage:
    found = Stage(2)
    found.report("worker-1", adapters=("calm@0a",))
    return found


def test_a_group_that_has_the_adapter_is_preferred() -> None:
    found = stage()
    assert {found.lease(adapter="calm@0a", num_prompt_tokens=40).worker_id for _ in range(3)} == {"worker-1"}
    assert {found.lease(num_prompt_tokens=40).worker_id for _ in range(2)} >= {"worker-0"}


def test_an_adapter_of_other_content_is_another() -> None:
    first, second = (stage().lease(adapter=key, num_prompt_tokens=40).worker_id for key in ("calm@0a", "calm@0b"))
    assert (first, second) == ("worker-1", "worker-0")


def test_a_group_that_is_busy_for_longer_than_loading_takes_is_not() -> None:
    found = stage()
    found.report(
        "worker-1", adapters=("calm@0a",), num_running=20, num_context_tokens=5_000, num_pending_prefill_tokens=8_000
    )
    assert found.lease(adapter="calm@0a").worker_id == "worker-0"
