"""What is waited for, in words."""

from headway.controller.status import assess_readiness
from tests.controller.test_reconcile import works


def test_of_many_models_a_few_are_named_and_the_others_counted() -> None:
    waiting = assess_readiness((), wanted=works("a:w0 b:w0 c:w0 d:w0 e:w0 f:w0"), workers={}).waiting_for
    assert waiting.endswith("d to load on w0 (0%); 2 more")
    assert waiting.count("to load on") == 4
    assert "more" not in assess_readiness((), wanted=works("a:w0 b:w1"), workers={}).waiting_for
