"""The layout that the planner chooses: the best by brute force, the same every time, and not another for little."""

from dataclasses import replace
from itertools import product
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from headway.core.errors import FailedPreconditionError, HeadwayError, InvalidArgumentError
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.core.plan.serving import Alternative, EngineLimits, ServingPlan, Verdict
from headway.core.shard import check_parallel
from headway.core.slo import Slo
from headway.planner.certify.explanation import explain
from headway.planner.serving.choice import limits_with
from headway.planner.serving.layouts import MIN_GAIN, layouts_of, weigh
from headway.rpc.convert import from_pb, to_pb
from headway.v1 import planner_pb2

GIB = 1024**3
LARGE = {"num_layers": 32, "hidden_size": 4096, "num_heads": 32, "head_dim": 128, "intermediate_size": 11_008}


@pytest.fixture
def gpus(make_worker: Any) -> Any:
    def make(num: int, *, memory_gib: int = 80, name: str = "NVIDIA H100") -> list[Any]:
        return [
            make_worker(f"worker-{index}", memory_bytes=memory_gib * GIB, device="cuda", name=name)
            for index in range(num)
        ]

    return make


def chosen_of(plan: ServingPlan) -> Alternative:
    return plan.alternatives[0]


def test_all_layouts_are_weighed_that_the_model_allows(make_model: Any) -> None:
    model = make_model(num_heads=8, num_kv_heads=2, num_layers=3)
    layouts = list(layouts_of([model], num_workers=4))
    assert len(set(layouts)) == len(layouts)
    assert layouts[0] == SINGLE
    allowed = set()
    for tp, pp, cp, ffn in product(range(1, 5), range(1, 5), range(1, 5), ("data", "tensor")):
        layout = ParallelConfig(tp=tp, pp=pp, cp=cp, cp_ffn=ffn)
        if layout.num_ranks <= 4 and (cp > 1 or ffn == "data"):
            try:
                check_parallel(model.spec, layout, num_workers=4)
            except InvalidArgumentError:
                continue
            allowed.add(layout)
    assert set(layouts) == allowed


def test_replicas_serve_a_model_that_fits_one_worker(plan_for: Any, make_model: Any, gpus: Any) -> None:
    plan = plan_for([make_model(dtype="bfloat16")], gpus(4))
    assert [assignment.parallel for assignment in plan.assignments] == [SINGLE] * 4
    assert chosen_of(plan).verdict is Verdict.REPLICAS
    assert chosen_of(plan).num_groups == 4


def test_a_model_too_large_for_one_worker_gets_the_best_layout_that_fits(
    plan_for: Any, make_model: Any, gpus: Any
) -> None:
    model = make_model(**LARGE, num_kv_heads=32, dtype="bfloat16")
    workers = gpus(4, memory_gib=12)
    with pytest.raises(FailedPreconditionError, match="fits no worker"):
        plan_for([model], workers, limits=EngineLimits(tp=1))
    plan = plan_for([model], workers)
    chosen = chosen_of(plan)
    assert chosen.parallel.num_ranks > 1
    assert chosen.verdict is Verdict.BEST
    assert SINGLE in {other.parallel for other in plan.alternatives if other.verdict is Verdict.UNFIT}
    rates = {}
    for layout in layouts_of([model], num_workers=4):
        try:
            rates[layout] = weigh(plan_for([model], workers, limits=limits_with(EngineLimits(), layout))).rate
        except HeadwayError:
            continue
    rates.pop(SINGLE, None)
    assert rates[chosen.parallel] >= 0.95 * max(rates.values())
    assert {other.parallel for other in plan.alternatives if other.verdict is not Verdict.UNFIT} == set(rates)
    for other in plan.alternatives:
        if other.parallel in rates:
            assert other.output_tokens_per_s == pytest.approx(rates[other.parallel])


def test_replicas_give_way_where_their_weights_leave_hardly_room(plan_for: Any, make_model: Any, gpus: Any) -> None:
    model = make_model(**LARGE, num_kv_heads=32, dtype="bfloat16", max_position=1 << 17)
    weights_gib = model.spec.weight_bytes / GIB
    tight = plan_for([model], gpus(4, memory_gib=round(weights_gib) + 4))
    assert chosen_of(tight).verdict is Verdict.BEST
    alone = next(other for other in tight.alternatives if other.parallel == SINGLE)
    assert chosen_of(tight).output_tokens_per_s > 2 * alone.output_tokens_per_s > 0
    assert chosen_of(plan_for([model], gpus(4))).verdict is Verdict.REPLICAS


def test_an_objective_that_one_worker_misses_splits_the_model(plan_for: Any, make_model: Any, gpus: Any) -> None:
    model = make_model(**LARGE, num_kv_heads=32, dtype="bfloat16")
    alone = plan_for([model], gpus(4)).assignments[0]
    slo = Slo(tpot_s=0.8 * alone.prediction.tpot_s)
    plan = plan_for([replace(model, slo=slo)], gpus(4))
    chosen = chosen_of(plan)
    assert chosen.parallel.tp > 1
    assert chosen.tpot_s <= slo.tpot_s
    verdicts = {other.parallel: other.verdict for other in plan.alternatives}
    assert verdicts[SINGLE] is Verdict.MISSES
    hopeless = plan_for([replace(model, slo=Slo(tpot_s=1e-9))], gpus(4))
    assert chosen_of(hopeless).parallel == SINGLE


def test_a_context_that_one_worker_cannot_hold_goes_over_shards_where_heads_do_not_split(
    plan_for: Any, make_model: Any, gpus: Any
) -> None:
    """Tensor parallelism keeps a copy of the one KV head on each worker: it makes no room."""
    shape = LARGE | {"num_layers": 80, "num_kv_heads": 1, "dtype": "bfloat16", "max_position": 1 << 22}
    short = make_model(**shape)
    workers = gpus(4, memory_gib=48)
    fits = plan_for([short], workers[:1]).assignments[0].max_model_len
    long = make_model(**shape, max_model_len=4 * fits)
    plan = plan_for([long], workers)
    assert plan.assignments[0].parallel.cp > 1 or plan.assignments[0].parallel.pp > 1
    fates = {other.parallel: other.verdict for other in plan.alternatives}
    assert fates[SINGLE] is Verdict.UNFIT


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.too_slow])
@given(data=st.data())
def test_the_choice_is_the_same_every_time_and_stays(
    data: st.DataObject, models_strategy: Any, workers_strategy: Any, plan_for: Any
) -> None:
    models, workers = data.draw(models_strategy), data.draw(workers_strategy)
    slo = data.draw(st.sampled_from([Slo(), Slo(tpot_s=0.05), Slo(ttft_s=0.5, tpot_s=0.02)]))
    models = [replace(model, slo=slo) for model in models]
    try:
        plan = plan_for(models, workers)
    except HeadwayError:
        return
    assert plan == plan_for(models, list(reversed(workers)))
    again = plan_for(models, workers, current=plan)
    assert again.assignments == plan.assignments
    if plan.alternatives:
        assert chosen_of(again).parallel == chosen_of(plan).parallel
    assert from_pb(to_pb(plan, planner_pb2.ServingPlan), ServingPlan) == plan


def test_a_layout_in_use_stays_unless_another_gains_clearly(plan_for: Any, make_model: Any, gpus: Any) -> None:
    model = make_model(**LARGE, num_kv_heads=32, dtype="bfloat16")
    workers = gpus(4, memory_gib=12)
    plan = plan_for([model], workers)
    best = chosen_of(plan)
    for other in plan.alternatives[1:]:
        if other.verdict is Verdict.UNFIT:
            continue
        in_use = replace(plan, alternatives=(replace(other, verdict=Verdict.BEST),))
        after = chosen_of(plan_for([model], workers, current=in_use))
        is_little = best.output_tokens_per_s < MIN_GAIN * other.output_tokens_per_s
        assert after.parallel == (other.parallel if is_little else best.parallel)
        assert after.verdict is (Verdict.KEPT if is_little else Verdict.BEST)


def test_a_model_that_has_lost_workers_is_no_reason_for_another_layout(
    plan_for: Any, make_model: Any, gpus: Any
) -> None:
    """With another one nothing stays where it is; weighed like that, the layout in use is as good as it was."""
    models = [make_model(name, **LARGE, num_kv_heads=32, dtype="bfloat16") for name in ("first", "second")]
    workers = gpus(20, memory_gib=24)
    before = plan_for(models, workers)
    assert chosen_of(before).verdict is Verdict.REPLICAS
    lost = [each.worker_id for each in before.assignments if each.model == "first"][:8]
    after = plan_for(models, [worker for worker in workers if worker.worker_id not in lost], current=before)
    assert chosen_of(after).parallel == SINGLE
    assert set(after.assignments) == {each for each in before.assignments if each.worker_id not in lost}


def test_a_layout_that_an_operator_sets_is_not_weighed(plan_for: Any, make_model: Any, gpus: Any) -> None:
    plan = plan_for([make_model()], gpus(4), limits=EngineLimits(tp=2))
    assert plan.alternatives == ()
    assert {assignment.parallel for assignment in plan.assignments} == {ParallelConfig(tp=2)}


def test_the_explanation_tells_what_was_weighed(plan_for: Any, make_model: Any, gpus: Any) -> None:
    text = " ".join(explain(plan_for([make_model(dtype="bfloat16")], gpus(2))))
    assert "layouts one worker each was chosen: every model fits one worker" in text
    assert "tp 2" in text
    large = make_model(**LARGE, num_kv_heads=32, dtype="bfloat16")
    text = " ".join(explain(plan_for([large], gpus(4, memory_gib=12))))
    assert "These do not fit, or leave a model without a group: one worker each" in text
    assert "is expected to give less" in text
