"""The models of the current plan."""

import asyncio
import os
import signal
from dataclasses import replace
from pathlib import Path

import pytest

from headway.core.adapter import Adapter
from headway.core.errors import NotFoundError, UnavailableError
from headway.core.sampling_defaults import SamplingDefaults
from headway.core.slo import Slo
from headway.gateway.job import Arrival, Prompt, make_job
from headway.gateway.options import Options
from headway.gateway.served_models import ServedModels
from headway.store.embedded import EmbeddedRedis
from headway.store.plans import PlanStore
from headway.store.redis import Database
from tests.gateway.world import MAX_MODEL_LEN, MODEL, PLAIN_MODEL, make_plan


async def test_models_follow_the_plan(database: Database, tmp_path: Path) -> None:
    plans = PlanStore(database)
    served_models = ServedModels(plans)
    await served_models.follower.refresh()
    with pytest.raises(UnavailableError, match="No model is served yet"):
        await served_models.get(MODEL)
    first = make_plan(tmp_path)
    await plans.set_current(first, replaces="")
    await served_models.follower.refresh()
    assert (await served_models.get(MODEL)).max_model_len == MAX_MODEL_LEN
    with pytest.raises(NotFoundError, match=f"{MODEL}, {PLAIN_MODEL}"):
        await served_models.get("other")
    replica = replace(first.assignments[0], worker_id="worker-7", group_id="group-7", max_model_len=100)
    second = replace(first, plan_id="plan-2", models=first.models[:1], assignments=(first.assignments[0], replica))
    await plans.set_current(second, replaces="plan-1")
    await served_models.follower.refresh()
    model = await served_models.get(MODEL)
    assert (model.num_replicas, model.max_model_len, model.block_size) == (2, 100, 16)
    assert list(served_models.models) == [MODEL]


async def test_a_gateway_beside_another_waits_until_it_knows_the_models_or_for_so_long(
    database: Database, tmp_path: Path
) -> None:
    """One that listened before was given its share of connections, and refused them."""
    plans = PlanStore(database)
    served_models = ServedModels(plans)
    await served_models.wait_for_plan(timeout_s=0.01)
    waiting = asyncio.create_task(served_models.wait_for_plan(timeout_s=600))
    await served_models.follower.refresh()
    assert not waiting.done()
    await plans.set_current(make_plan(tmp_path), replaces="")
    await served_models.follower.refresh()
    await waiting
    assert MODEL in served_models.models


async def test_a_checkpoint_that_cannot_be_read_spares_the_others(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (tmp_path / "tiny" / "tokenizer.json").write_text("{}")
    await PlanStore(database).set_current(plan, replaces="")
    served_models = ServedModels(PlanStore(database))
    await served_models.follower.refresh()
    with pytest.raises(UnavailableError, match="cannot be read"):
        await served_models.get(MODEL)
    assert "tokenizer.json" in served_models.faults[MODEL].message
    assert (await served_models.get(PLAIN_MODEL)).template is None


async def test_generation_config_is_read_as_the_plan_says(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (tmp_path / "tiny" / "generation_config.json").write_text('{"temperature": 0.5, "max_new_tokens": 9}')
    off = replace(plan.models[0], name="off", generation_config="none")
    chosen = replace(plan.models[1], generation_config=str(tmp_path / "tiny"))
    models = (plan.models[0], off, chosen)
    await PlanStore(database).set_current(replace(plan, models=models), replaces="")
    served_models = ServedModels(PlanStore(database))
    await served_models.follower.refresh()
    assert {name: model.sampling_defaults for name, model in served_models.models.items()} == {
        MODEL: SamplingDefaults(temperature=0.5, max_tokens=9),
        "off": SamplingDefaults(),
        PLAIN_MODEL: SamplingDefaults(temperature=0.5, max_tokens=9, max_tokens_limit=9),
    }


async def test_a_template_that_is_no_jinja_leaves_completions(database: Database, tmp_path: Path) -> None:
    plan = make_plan(tmp_path)
    (tmp_path / "tiny" / "chat_template.jinja").write_text("{% if %}")
    await PlanStore(database).set_current(plan, replaces="")
    served_models = ServedModels(PlanStore(database))
    await served_models.follower.refresh()
    assert (await served_models.get(MODEL)).template is None


async def test_the_last_known_models_stay_while_redis_is_away(tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path / "redis")
    redis.start()
    database = Database.connect(redis.url, namespace="test")
    served_models = ServedModels(PlanStore(database))
    await PlanStore(database).set_current(make_plan(tmp_path), replaces="")
    await served_models.follower.refresh()
    redis.stop()
    with pytest.raises(UnavailableError):
        await served_models.follower.refresh()
    assert (await served_models.get(MODEL)).name == MODEL
    await database.close()


async def test_a_new_name_is_looked_for_in_the_newest_plan(database: Database, tmp_path: Path) -> None:
    plans = PlanStore(database)
    served_models = ServedModels(plans)
    plan = make_plan(tmp_path)
    await plans.set_current(replace(plan, models=plan.models[1:], assignments=()), replaces="")
    await served_models.follower.refresh()
    await plans.set_current(replace(plan, plan_id="plan-2"), replaces=plan.plan_id)
    found = await asyncio.gather(*[served_models.get(MODEL) for _ in range(3)])
    assert [model.name for model in found] == [MODEL] * 3
    assert served_models.plan is not None
    assert served_models.plan.plan_id == "plan-2"


async def test_a_redis_that_hangs_keeps_nobody(tmp_path: Path) -> None:
    redis = EmbeddedRedis(tmp_path / "redis")
    redis.start()
    database = Database.connect(redis.url, namespace="test")
    served_models = ServedModels(PlanStore(database))
    await PlanStore(database).set_current(make_plan(tmp_path), replaces="")
    await served_models.follower.refresh()
    os.kill(redis.pid, signal.SIGSTOP)
    try:
        assert (await served_models.get(MODEL)).name == MODEL
        with pytest.raises(NotFoundError):
            await served_models.get("other")
        await served_models.follower.catch_up()
    finally:
        os.kill(redis.pid, signal.SIGCONT)
    await served_models.follower.refresh()
    await database.close()
    redis.stop()


async def test_an_adapter_is_a_model_whose_requests_go_to_its_base_and_share_no_prefix(
    database: Database, tmp_path: Path
) -> None:
    plan = make_plan(tmp_path)
    adapter = Adapter(name="calm", directory="/adapters/calm", digest="0a")
    models = (replace(plan.models[0], adapters=(adapter,)), plan.models[1])
    await PlanStore(database).set_current(replace(plan, models=models), replaces="")
    served_models = ServedModels(PlanStore(database))
    await served_models.follower.refresh()
    assert list(served_models.models) == [MODEL, "calm", PLAIN_MODEL]
    assert served_models.worker_models == {MODEL, PLAIN_MODEL}
    calm = await served_models.get("calm")
    assert (calm.name, calm.max_model_len) == ("calm", MAX_MODEL_LEN)
    job = make_job(
        request_id="r",
        model=calm,
        prompts=[Prompt(token_ids=(5, 6), field="prompt")],
        options=Options(),
        arrival=Arrival(at_s=0.0, slo=Slo(), cache_salt="tenant\0"),
        random_seed=1,
    )
    (request,) = job.requests(0)
    assert (request.model, request.adapter, request.cache_salt) == (MODEL, adapter, "calm@0a\0tenant\0")
