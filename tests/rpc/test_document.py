"""Messages of the control plane and core types, whatever their numbers."""

import math

import pytest

from headway.core.plan.serving import ServingPlan
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2


@pytest.mark.parametrize("created_at_s", [0.0, 1.5, math.inf, -math.inf, math.nan])
def test_numbers_that_json_has_no_words_for_arrive_too(created_at_s: float) -> None:
    """Found by tests/fuzz: a plan of such a time crashed the controller's call."""
    plan = ServingPlan(plan_id="a", created_at_s=created_at_s, models=(), workers=(), assignments=())
    read = from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan)
    assert repr(read) == repr(plan)
