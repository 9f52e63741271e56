"""The checker finds each thing that must not be, and nothing else."""

from dataclasses import replace

import pytest

from tests.chaos.history import Applied, Asked, Fault, Outcome, lost_applies, violations

ANSWERS = {"a": "one two three"}
WHOLE = Asked(prompt="a", began_s=1.0, ended_s=2.0, outcome=Outcome.COMPLETE, text="one two three")
BROKEN = replace(WHOLE, outcome=Outcome.BROKEN, text="one t", detail="ReadError")
KILL = Fault(name="kill gateway", began_s=1.5, ended_s=3.0, harms=frozenset({Outcome.BROKEN}))


def test_whole_answers_and_excused_breaks_are_well() -> None:
    assert (
        violations([WHOLE, BROKEN, replace(BROKEN, began_s=2.9, ended_s=4.0, text="")], [KILL], answers=ANSWERS) == []
    )


@pytest.mark.parametrize(
    ("asked", "what"),
    [
        (replace(WHOLE, outcome=None), "no outcome"),
        (replace(WHOLE, text="one two"), "instead of"),
        (replace(WHOLE, text="one two two three"), "instead of"),
        (replace(BROKEN, text="one one"), "no beginning"),
        (replace(BROKEN, began_s=3.1, ended_s=4.0), "for no reason (while nothing happened): ReadError"),
        (replace(BROKEN, began_s=0.1, ended_s=1.4), "for no reason"),
        (replace(BROKEN, outcome=Outcome.REFUSED), "refused for no reason (while kill gateway): "),
    ],
)
def test_what_must_not_be_is_found(asked: Asked, what: str) -> None:
    (violation,) = violations([WHOLE, asked], [KILL], answers=ANSWERS)
    assert what in violation


DONE = Applied(plan_id="a", is_acknowledged=True)
UNKNOWN = Applied(plan_id="b", is_acknowledged=False)
LATER = Applied(plan_id="c", is_acknowledged=True)


@pytest.mark.parametrize("told", [["c", "a"], ["c", "b", "a"], ["refreshed", "c", "first", "a"]])
def test_acknowledged_plans_stay_and_others_may(told: list[str]) -> None:
    assert lost_applies([DONE, UNKNOWN, LATER], told) == []


@pytest.mark.parametrize(
    ("told", "what"), [(["c", "b"], "a was acknowledged and is lost"), (["a", "c"], "are told as c, a")]
)
def test_lost_and_returned_plans_are_found(told: list[str], what: str) -> None:
    (violation,) = lost_applies([DONE, UNKNOWN, LATER], told)
    assert what in violation
