"""The models of the current plan."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.errors import NotFoundError, UnavailableError
from headway.gateway.catalogue import Catalogue
from headway.store.embedded import EmbeddedRedis
from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, make_plan


async def test_models_follow_the_plan(database: Database, tmp_path: Path) -> None:
    plans = PlanStore(database)
    catalogue = Catalogue(plans)
    await catalogue.refresh()
    with pytest.raises(UnavailableError, match="No model is served yet"):
        catalogue.get(MODEL)
    first = make_plan(tmp_path)
    await plans.set_current(first, replaces="")
    await catalogue.refresh()
    assert catalogue.get(MODEL).max_model_len == MAX_MODEL_LEN
    with pytest.raises(NotFoundError, match=f"{MODEL}, {PLAIN_MODEL}"):
        catalogue.get("other")
    replica = replace(first.assignments[0], worker_id="worker-7", group_id="group-7", max_model_len=100)
    second = replace(first, plan_id="plan-2", models=first.models[:1], assignments=(first.assignments[0], replica))
    await plans.set_current(second, replaces="plan-1")
    await catalogue.refresh()
    model = catalogue.get(MODEL)
    assert (model.num_replicas, model.max_model_len, model.block_size) == (2, 100, 16)
    assert list(catalogue.models) == [MODEL]


async def test_a_checkpoint_that_cannot_be_read_spares_the_others(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (tmp_path / "tiny" / "tokenizer.json").write_text("{}")
    await PlanStore(database).set_current(plan, replaces="")
    catalogue = Catalogue(PlanStore(database))
    await catalogue.refresh()
    with pytest.raises(UnavailableError, match="cannot be read"):
        catalogue.get(MODEL)
    assert "tokenizer.json" in catalogue.faults[MODEL].message
    assert catalogue.get(PLAIN_MODEL).template is None


async def test_a_template_that_is_no_jinja_leaves_completions(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (tmp_path / "tiny" / "chat_template.jinja").write_text("{% if %}")
    await PlanStore(database).set_current(plan, replaces="")
    catalogue = Catalogue(PlanStore(database))
    await catalogue.refresh()
    assert catalogue.get(MODEL).template is None


async def test_the_last_known_models_stay_while_redis_is_away(tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path / "redis")
    redis.start()
    database = Database.connect(redis.url, namespace="test")
    catalogue = Catalogue(PlanStore(database))
    await PlanStore(database).set_current(make_plan(tmp_path), replaces="")
    await catalogue.refresh()
    redis.stop()
    with pytest.raises(UnavailableError):
        await catalogue.refresh()
    assert catalogue.get(MODEL).name == MODEL
    await database.close()
