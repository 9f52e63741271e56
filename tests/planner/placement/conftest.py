"""Models, placements and traces for the simulator's and the search's tests."""

import json

import numpy as np
import pytest

from headway.core.catalogue.figure import Provenance
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.core.stage_profile import StageBatch, StageProfile
from headway.planner.placement.workload import Workload
from tests.reference.arrivals import CASES, PROFILES, recorded_workload


def profile(
    stages: list[float], *, op: int = 1, weight_bytes: int = 1, batches: dict[int, float] | None = None
) -> StageProfile:
    """`batches`: factors of the latencies at further batch sizes."""
    factors = {1: 1.0, **(batches or {})}
    return StageProfile(
        profile_id="test",
        model="test",
        hardware="test",
        pp=len(stages),
        op=op,
        weight_bytes=(weight_bytes,) * len(stages),
        batches=tuple(
            StageBatch(
                batch_size=size,
                stage_latency_s=tuple(factor * each for each in stages),
                activation_bytes=(0,) * len(stages),
            )
            for size, factor in factors.items()
        ),
        source="test",
        provenance=Provenance.IMPORTED,
        created_at_s=0.0,
    )


def group(pp: int, op: int, *models: str) -> PlacedGroup:
    return PlacedGroup(shape=GroupShape(pp=pp, op=op), models=models)


def trace(names: list[str], arrivals: list[list[float]], slo_s: float | list[float] = np.inf) -> Workload:
    """`arrivals` and `slo_s` of each model."""
    slos = slo_s if isinstance(slo_s, list) else [slo_s] * len(names)
    rows = sorted((at_s, index) for index, times in enumerate(arrivals) for at_s in times)
    return Workload(
        models=tuple(names),
        arrival_s=np.array([at_s for at_s, _ in rows]),
        model=np.array([index for _, index in rows], np.int32),
        slo_s=np.array([slos[index] for _, index in rows], np.float64),
    )


def gamma_trace(names: list[str], *, rate: float, cv: float, duration_s: float, slo_s: float, seed: int) -> Workload:
    """`rate` a model."""
    rng = np.random.default_rng(seed)
    count = int(rate * duration_s * 2) + 50
    arrivals = [np.cumsum(rng.gamma(1 / cv**2, cv**2 / rate, count)) for _ in names]
    return trace(names, [[float(each) for each in times if each < duration_s] for times in arrivals], slo_s)


class Reference:
    """AlpaServe's recorded cases."""

    def __init__(self) -> None:
        document = json.loads(PROFILES.read_text())
        self.cases = json.loads(CASES.read_text())["cases"]
        self._configs = {name: entry["configs"] for name, entry in document["models"].items()}

    def models(self, case: dict) -> list[PlacedModel]:
        return [PlacedModel(name=entry["name"], profiles=self._profiles(entry["type"])) for entry in case["models"]]

    def _profiles(self, kind: str) -> tuple[StageProfile, ...]:
        return tuple(
            StageProfile(
                profile_id=name,
                model=kind,
                hardware="V100",
                pp=config["pp"],
                op=config["op"],
                weight_bytes=tuple(int(each) for each in config["weight_mem_bytes"]),
                batches=(
                    StageBatch(
                        batch_size=1,
                        stage_latency_s=tuple(config["batch"]["1"]["stage_latency_s"]),
                        activation_bytes=tuple(int(each) for each in config["batch"]["1"]["act_mem_bytes"]),
                    ),
                ),
                source="AlpaServe",
                provenance=Provenance.IMPORTED,
                created_at_s=0.0,
            )
            for name, config in self._configs[kind].items()
        )

    def workload(self, case: dict, *, train: bool = False) -> Workload:
        return recorded_workload(case, train=train)

    def placement(self, case: dict, result: dict) -> Placement:
        names = [entry["name"] for entry in case["models"]]
        return Placement(
            groups=tuple(
                group(entry["pp"], entry["op"], *(names[index] for index in entry["models"]))
                for entry in result["placement"]["groups"]
            )
        )


@pytest.fixture(scope="session")
def reference() -> Reference:
    return Reference()
