"""Models, workers and strategies that the planner's tests share."""

from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import strategies as st

from headway.core.cluster import Hardware, PlanWorker
from headway.core.model import ExpertsSpec, ModelFamily, ModelSpec, RopeSpec
from headway.core.plan.serving import EngineLimits, ModelDeployment, ServingPlan
from headway.core.profile import Profile
from headway.planner.serving.choice import choose_plan
from tests.specs import llama_spec

GIB = 1024**3


def _spec(**changes: Any) -> ModelSpec:
    """A Llama of about 50 million parameters."""
    usual: dict[str, Any] = {
        "vocab_size": 32_000,
        "hidden_size": 512,
        "num_layers": 8,
        "num_heads": 8,
        "num_kv_heads": 4,
        "head_dim": 64,
        "intermediate_size": 1408,
        "max_position": 2048,
        "rope": RopeSpec(theta=1e4, rotary_dim=64),
    }
    return llama_spec(**(usual | changes))


def _model(name: str = "llama", *, max_model_len: int | None = None, **changes: Any) -> ModelDeployment:
    return ModelDeployment(name=name, directory=f"/models/{name}", spec=_spec(**changes), max_model_len=max_model_len)


def _worker(
    worker_id: str = "worker-0",
    *,
    memory_bytes: int = 8 * GIB,
    num_threads: int = 2,
    device: str = "cpu",
    name: str = "",
) -> PlanWorker:
    hardware = Hardware(
        device=device, name=name or "Test CPU", num_threads=num_threads, memory_bytes=memory_bytes, software={}
    )
    return PlanWorker(worker_id=worker_id, hardware=hardware)


def _plan(
    models: list[ModelDeployment],
    workers: list[PlanWorker],
    *,
    limits: EngineLimits | None = None,
    profiles: dict[str, Profile] | None = None,
    current: ServingPlan | None = None,
) -> ServingPlan:
    return choose_plan(
        models,
        workers,
        limits=limits or EngineLimits(),
        profiles=profiles or {},
        plan_id="plan-1",
        created_at_s=1.0,
        current=current,
    )


@pytest.fixture(scope="session")
def make_spec() -> Callable[..., ModelSpec]:
    return _spec


@pytest.fixture(scope="session")
def make_model() -> Callable[..., ModelDeployment]:
    return _model


@pytest.fixture(scope="session")
def make_worker() -> Callable[..., PlanWorker]:
    return _worker


@pytest.fixture(scope="session")
def plan_for() -> Callable[..., ServingPlan]:
    """`choose_plan` with the arguments that tests seldom vary filled in."""
    return _plan


def _optional(values: st.SearchStrategy[int]) -> st.SearchStrategy[int | None]:
    return st.none() | values


def _experts() -> st.SearchStrategy[ExpertsSpec]:
    return st.builds(
        ExpertsSpec,
        num_experts=st.integers(2, 128),
        num_experts_per_tok=st.integers(1, 2),
        intermediate_size=st.sampled_from([256, 768]),
        shared_intermediate_size=st.sampled_from([0, 1024]),
    )


@st.composite
def _models(draw: st.DrawFn) -> list[ModelDeployment]:
    models = []
    for index in range(draw(st.integers(1, 4))):
        num_kv_heads = draw(st.sampled_from([1, 2, 8, 32]))
        family = draw(st.sampled_from(list(ModelFamily)))
        models.append(
            _model(
                f"model-{index}",
                max_model_len=draw(_optional(st.integers(1, 40_000))),
                family=family,
                vocab_size=draw(st.integers(100, 150_000)),
                hidden_size=draw(st.sampled_from([64, 512, 4096])),
                num_layers=draw(st.integers(1, 48)),
                num_heads=num_kv_heads * draw(st.sampled_from([1, 4])),
                num_kv_heads=num_kv_heads,
                head_dim=draw(st.sampled_from([32, 64, 128])),
                intermediate_size=draw(st.sampled_from([256, 1408, 14_336])),
                max_position=draw(st.sampled_from([64, 1024, 4096, 131_072])),
                dtype=draw(st.sampled_from(["float32", "bfloat16"])),
                rope=RopeSpec(theta=1e4, rotary_dim=32) if family is ModelFamily.LLAMA else None,
                tied_embeddings=draw(st.booleans()),
                quantization=draw(st.sampled_from([None, "int8"])),
                experts=draw(st.none() | _experts()) if family is ModelFamily.LLAMA else None,
            )
        )
    return models


@st.composite
def _workers(draw: st.DrawFn) -> list[PlanWorker]:
    kinds = st.sampled_from([("cpu", "Test CPU"), ("cuda", "NVIDIA H200"), ("cuda", "Strange GPU")])
    workers = []
    for index in range(draw(st.integers(1, 6))):
        device, name = draw(kinds)
        memory_bytes = draw(st.integers(GIB // 4, 64 * GIB))
        threads = draw(st.sampled_from([1, 2, 64]))
        workers.append(
            _worker(f"worker-{index}", memory_bytes=memory_bytes, num_threads=threads, device=device, name=name)
        )
    return workers


@pytest.fixture(scope="session")
def models_strategy() -> st.SearchStrategy[list[ModelDeployment]]:
    return _models()


@pytest.fixture(scope="session")
def workers_strategy() -> st.SearchStrategy[list[PlanWorker]]:
    return _workers()


@pytest.fixture(scope="session")
def limits_strategy() -> st.SearchStrategy[EngineLimits]:
    return st.builds(
        EngineLimits,
        block_size=_optional(st.sampled_from([8, 16, 32])),
        max_num_seqs=_optional(st.integers(1, 512)),
        max_num_batched_tokens=_optional(st.integers(1, 8192)),
        kv_cache_bytes=_optional(st.integers(1, 8 * GIB)),
        enable_prefix_cache=st.none() | st.booleans(),
        host_cache_bytes=_optional(st.integers(0, 8 * GIB)),
        tp=_optional(st.integers(1, 4)),
    )
