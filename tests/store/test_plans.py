"""Plans in Redis: one form of document for all kinds, and a store for each."""

import json
from dataclasses import replace
from unittest.mock import AsyncMock

import pytest

from headway.core.codec import to_document
from headway.core.errors import InvalidArgumentError
from headway.store.plan_follower import PlanFollower
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.store.schema import PLAN, TRAINING_PLAN
from headway.store.training_plans import TrainingPlanStore
from tests.core.plans import SERVING, TRAINING


async def test_a_serving_plan_has_its_kind_and_comes_back(database: Database) -> None:
    plans = PlanStore(database)
    await plans.set_current(SERVING, replaces="")
    text = await database.redis.get(PLAN.key(database.namespace, SERVING.plan_id))
    assert json.loads(text)["kind"] == "serving"
    assert await plans.current() == SERVING


async def test_that_nothing_is_planned_is_only_said_where_redis_says_so(database: Database) -> None:
    plans, away = PlanStore(database), Database.connect("redis://127.0.0.1:1/0", namespace="away")
    nobody = AsyncMock()
    assert await PlanFollower(plans, take=nobody).finds_none()
    await plans.set_current(SERVING, replaces="")
    assert not await PlanFollower(plans, take=nobody).finds_none()
    assert not await PlanFollower(PlanStore(away), take=nobody).finds_none()
    await away.close()


async def test_a_serving_plan_from_before_there_were_kinds_is_read(database: Database) -> None:
    plans = PlanStore(database)
    await database.redis.set(PLAN.key(database.namespace, "plan-0"), json.dumps(to_document(SERVING)))
    assert await plans.get("plan-0") == SERVING


async def test_a_newer_plan_is_refused_with_its_id(database: Database) -> None:
    key = PLAN.key(database.namespace, "plan-9")
    await database.redis.set(key, json.dumps({"kind": "serving", "version": 9, **to_document(SERVING)}))
    with pytest.raises(InvalidArgumentError, match=r"plan-9\.version is 9"):
        await PlanStore(database).get("plan-9")


async def test_training_plans_are_kept_apart_from_the_plan_in_use(database: Database) -> None:
    store, plans = TrainingPlanStore(database), PlanStore(database)
    later = replace(TRAINING, plan_id="training-2", created_at_s=2.0)
    await store.save(TRAINING)
    await store.save(later)
    assert await store.get("training-1") == TRAINING
    assert await store.all() == [later, TRAINING]
    assert await plans.current_id() == ""
    assert await plans.history() == []
    text = await database.redis.get(TRAINING_PLAN.key(database.namespace, "training-1"))
    assert json.loads(text)["kind"] == "training"
    assert await store.delete("training-1")
    assert not await store.delete("training-1")
    assert await store.all() == [later]


async def test_a_plan_of_another_kind_is_not_taken_for_it(database: Database) -> None:
    await database.redis.set(
        TRAINING_PLAN.key(database.namespace, "odd"), json.dumps({"kind": "serving", **to_document(SERVING)})
    )
    with pytest.raises(InvalidArgumentError, match="a training plan is needed"):
        await TrainingPlanStore(database).get("odd")
