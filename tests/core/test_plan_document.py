"""The document form that all plans have."""

import json
from typing import Any

import pytest

from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.core.plan.document import Plan, from_plan_document, plan_from_document, to_plan_document
from headway.core.plan.serving import ServingPlan
from tests.core.plans import PLACEMENT, PLANS, SERVING


@pytest.mark.parametrize(("kind", "plan"), PLANS.items())
def test_a_plan_is_written_with_its_kind_and_version_and_read_again(kind: str, plan: Plan) -> None:
    document = to_plan_document(plan)
    assert list(document)[:2] == ["kind", "version"]
    assert (document["kind"], document["version"]) == (kind, 1)
    assert from_plan_document(json.loads(json.dumps(document))) == plan


@pytest.mark.parametrize("plan", [SERVING, PLACEMENT], ids=["serving", "placement"])
def test_a_plan_from_before_there_were_kinds_is_read(plan: Plan) -> None:
    document = to_document(plan)
    assert "kind" not in document
    assert from_plan_document(document) == plan


@pytest.mark.parametrize(
    ("changes", "field", "told"),
    [
        ({"kind": "holiday"}, "p.kind", "p.kind is 'holiday', which is no kind of plan"),
        ({"kind": 3}, "p.kind", "p.kind is 3"),
        ({"version": 2}, "p.version", "p.version is 2, and this Headway reads serving plans up"),
        ({"version": "new"}, "p.version", "p.version should be a number from 1 on, not 'new'"),
        ({"version": 0}, "p.version", "not 0"),
        ({"stages": []}, "p.stages", "unknown field 'stages'"),
    ],
)
def test_a_document_that_cannot_be_read_is_told_with_its_field(changes: dict[str, Any], field: str, told: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        from_plan_document(to_plan_document(SERVING) | changes, path="p")
    assert told in caught.value.message
    assert caught.value.field == field
    assert caught.value.hint


@pytest.mark.parametrize("document", [[], None, "plan", {}])
def test_what_is_no_plan_at_all_is_told(document: Any) -> None:
    with pytest.raises(InvalidArgumentError):
        from_plan_document(document)


def test_a_plan_of_another_kind_than_is_needed_is_refused() -> None:
    assert plan_from_document(ServingPlan, to_plan_document(SERVING)) == SERVING
    with pytest.raises(InvalidArgumentError, match=r"plan\.kind is placement, and a serving plan is needed"):
        plan_from_document(ServingPlan, to_plan_document(PLACEMENT))
