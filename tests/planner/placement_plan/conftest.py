"""Models, profiles and problems that the tests of placement share."""

from collections.abc import Callable, Sequence
from typing import Any

import pytest

from headway.core.catalogue.figure import Provenance
from headway.core.placement_problem import PlacementProblem, ProblemModel, ServingCluster, WorkloadSource
from headway.core.stage_profile import StageBatch, StageProfile, stage_profile_id

GIB = 1024**3


def _profile(
    model: str = "small", *stage_s: float, op: int = 1, weight_gib: float = 2.0, activation_gib: float = 0.0
) -> StageProfile:
    """Stages of those seconds, that many GiB of weights over all devices, and of activations on each."""
    pp, activation_bytes = len(stage_s), int(activation_gib * GIB)
    return StageProfile(
        profile_id=stage_profile_id(model, "V100-16", pp=pp, op=op),
        model=model,
        hardware="V100-16",
        pp=pp,
        op=op,
        weight_bytes=(int(weight_gib * GIB) // (pp * op),) * pp,
        batches=(StageBatch(batch_size=1, stage_latency_s=stage_s, activation_bytes=(activation_bytes,) * pp),),
        source="made up",
        provenance=Provenance.IMPORTED,
        created_at_s=0.0,
    )


def _problem(
    workload: WorkloadSource,
    *,
    names: Sequence[str] = ("a", "b"),
    profiles: Sequence[StageProfile] = (),
    num_devices: int = 2,
    memory_gib: float = 4.0,
    **of_models: Any,
) -> PlacementProblem:
    profiles = profiles or (_profile("small", 0.1), _profile("small", 0.055, 0.055))
    return PlacementProblem(
        models=tuple(ProblemModel(name=name, architecture=profiles[0].model, **of_models) for name in names),
        profiles=tuple(profiles),
        cluster=ServingCluster(
            device="V100-16", num_devices=num_devices, devices_per_node=8, memory_bytes=int(memory_gib * GIB)
        ),
        workload=workload,
    )


@pytest.fixture(scope="session")
def make_profile() -> Callable[..., StageProfile]:
    return _profile


@pytest.fixture(scope="session")
def make_problem() -> Callable[..., PlacementProblem]:
    return _problem
