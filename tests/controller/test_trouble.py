"""Loads that fail."""

from dataclasses import replace
from typing import Any

import pytest

from headway.controller.reconcile import load_orders_of
from headway.controller.trouble import LoadTrouble
from headway.core.errors import NotFoundError, UnavailableError
from headway.core.load_order import LoadOrder


@pytest.fixture
def work(make_plan: Any) -> LoadOrder:
    wanted: LoadOrder = load_orders_of(make_plan({"worker-0": "llama"}))["worker-0"][0]
    return wanted


def test_a_lost_worker_is_tried_again_ever_later_and_becomes_a_fault_in_the_end(work: LoadOrder) -> None:
    trouble = LoadTrouble()
    for number, delay_s in enumerate((0.5, 1.0, 2.0, 4.0, 5.0), start=1):
        trouble.note_failure(UnavailableError("gone"), work=work, worker_id="worker-0", now_s=0.0)
        assert not trouble.allows(work, now_s=delay_s - 0.01)
        assert trouble.allows(work, now_s=delay_s)
        assert (trouble.fault is not None) == (number >= 3)
    assert trouble.fault is not None
    assert "lost 5 times while it loaded llama" in trouble.fault.message


def test_a_fault_that_does_not_pass_is_told_at_once_and_tried_again_seldom(work: LoadOrder) -> None:
    trouble, error = LoadTrouble(), NotFoundError("no weights")
    trouble.note_failure(error, work=work, worker_id="worker-0", now_s=0.0)
    assert trouble.fault is error
    assert not trouble.allows(work, now_s=29.0)
    assert trouble.allows(work, now_s=30.0)


def test_other_work_may_be_tried_at_once_and_success_ends_the_trouble(work: LoadOrder) -> None:
    trouble = LoadTrouble()
    trouble.note_failure(NotFoundError("no weights"), work=work, worker_id="worker-0", now_s=0.0)
    assert trouble.allows(replace(work, model="qwen"), now_s=0.0)
    trouble.note_success()
    assert trouble.fault is None
    assert trouble.allows(work, now_s=0.0)
