"""What the router predicts of a group's line, where things go otherwise than planned."""

import math
from typing import Any

import pytest

from headway.core.latency import LatencyModel
from headway.core.line import QueuePolicy, rank_of
from headway.router.latency_predictor import LatencyPredictor, LeasedJob


def job(ready_s: float, **changes: Any) -> LeasedJob:
    """Of a model that takes 1 s, and with others in a batch 0.5 s more for each."""
    latency = LatencyModel(
        base_s=0.5, per_prefill_token_s=0.5, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
    )
    usual: dict[str, Any] = {
        "model": "a",
        "num_tokens": 1,
        "ready_s": ready_s,
        "deadline_s": math.inf,
        "latencies": (latency,),
        "max_num_jobs": 1,
        "max_num_tokens": 8,
    }
    return LeasedJob(**(usual | changes))


def test_a_job_is_answered_after_all_that_were_leased_before() -> None:
    predictor = LatencyPredictor()
    for number in range(3):
        predictor.enter(str(number), job(10.0), now_s=10.0)
    assert predictor.predict(job(10.5), now_s=10.5).answer_s == 14.0


def test_an_answer_that_comes_early_or_late_moves_what_is_behind_it() -> None:
    predictor = LatencyPredictor()
    for number in range(3):
        predictor.enter(str(number), job(0.0), now_s=0.0)
    predictor.leave("0", now_s=0.75, is_complete=True)
    assert predictor.predict(job(0.75), now_s=0.75).answer_s == pytest.approx(3.75)
    assert predictor.predict(job(5.0), now_s=5.0).answer_s == pytest.approx(7.0)  # one is overdue, one behind it
    predictor.leave("1", now_s=6.0, is_complete=True)
    assert predictor.predict(job(6.0), now_s=6.0).answer_s == pytest.approx(8.0)


def test_a_group_without_leases_has_nothing_behind_it() -> None:
    predictor = LatencyPredictor()
    predictor.enter("a", job(0.0), now_s=0.0)
    predictor.leave("a", now_s=0.25, is_complete=False)
    assert predictor.is_empty
    assert predictor.predict(job(0.25), now_s=0.25).answer_s == 1.25


def test_a_batch_takes_those_that_wait_while_all_keep_their_deadlines() -> None:
    predictor = LatencyPredictor()
    for name, deadline_s in (("a", math.inf), ("b", 3.0), ("c", 2.6), ("d", 2.4)):
        predictor.enter(name, job(0.0, deadline_s=deadline_s, max_num_jobs=4), now_s=0.0)
    predictor.leave("a", now_s=1.0, is_complete=True)
    assert predictor.predict(job(1.0, max_num_jobs=4), now_s=1.0).soonest_s == pytest.approx(3.5)  # b and c until 2.5
    predictor.leave("b", now_s=2.5, is_complete=True)
    predictor.leave("c", now_s=2.5, is_complete=True)
    assert predictor.is_empty  # d could not be in time any more


def test_a_job_of_higher_rank_waits_for_those_of_lower_rank_only() -> None:
    predictor = LatencyPredictor()
    for name, priority in (("running", 5), ("late", 9), ("soon", 1)):
        rank = rank_of(QueuePolicy.PRIORITY, latest_start_s=math.inf, priority=priority)
        predictor.enter(name, job(0.0, rank=rank), now_s=0.0)
    assert predictor.predict(job(0.5, rank=(3,)), now_s=0.5).soonest_s == pytest.approx(3.0)
    assert predictor.predict(job(0.5, rank=(10,)), now_s=0.5).answer_s == pytest.approx(4.0)


def considerate(deadline_s: float, *, ready_s: float = 0.0) -> LeasedJob:
    """Of a model that takes 1 s, in a line by slack."""
    return job(ready_s, deadline_s=deadline_s, rank=(deadline_s - 1.0,), is_considerate=True)


def test_who_could_wait_least_goes_first_unless_others_would_be_late() -> None:
    predictor = LatencyPredictor()
    for name, deadline_s in (("running", 1.5), ("tight", 2.5), ("loose", 4.4)):
        predictor.enter(name, considerate(deadline_s), now_s=0.0)
    assert predictor.predict(considerate(9.0), now_s=0.5).answer_s == pytest.approx(4.0)  # behind all
    ahead = predictor.predict(considerate(3.0), now_s=0.5)
    assert (ahead.answer_s, ahead.is_harmful) == (pytest.approx(3.0), False)  # the loose one still ends at 4.0
    predictor.enter("ahead", considerate(3.0), now_s=0.5)
    again = predictor.predict(considerate(3.9), now_s=0.5)
    assert again.is_harmful  # the loose one would end at 5.0
    assert not predictor.predict(considerate(4.5), now_s=0.5).is_harmful  # it lets the loose one go first


def test_who_is_late_already_holds_nobody_up() -> None:
    predictor = LatencyPredictor()
    for name, deadline_s in (("running", 1.5), ("first", 2.5), ("hopeless", 2.7)):
        predictor.enter(name, considerate(deadline_s), now_s=0.0)
    newcomer = predictor.predict(considerate(3.1), now_s=0.5)
    assert (newcomer.answer_s, newcomer.is_harmful) == (pytest.approx(3.0), False)


def test_ranks_are_those_of_the_policies() -> None:
    def rank(policy: QueuePolicy) -> tuple[float, ...]:
        return rank_of(policy, latest_start_s=7.5, priority=-2)

    assert [rank(policy) for policy in QueuePolicy] == [(), (7.5,), (-2,)]
