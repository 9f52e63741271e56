"""Cases as the AlpaServe artifact's are recorded: models, a cluster, a trace to search on and one to measure on."""

import csv
import gzip
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from headway.core.errors import InvalidArgumentError
from headway.core.placement import GroupShape, PlacedGroup, PlacedModel, Placement
from headway.core.stage_profile import StageProfile
from headway.planner.placement.workload import Workload
from headway.profiler.formats import alpaserve
from headway.profiler.formats.document import Field


@dataclass(frozen=True, slots=True, kw_only=True)
class Recorded:
    """A placement that the artifact found, and its attainment."""

    policy: str
    protocol: str
    attainment: float
    search_s: float
    placement: Placement | None


@dataclass(frozen=True, slots=True, kw_only=True, eq=False)
class Case:
    """A placement problem with two traces.

    Attributes:
        train: trace that is searched on.
        test: trace that the placement is then measured on.
    """

    name: str
    models: tuple[PlacedModel, ...]
    num_devices: int
    memory_bytes: int
    devices_per_node: int
    train: Workload
    test: Workload
    recorded: tuple[Recorded, ...] = ()

    @property
    def best_recorded(self) -> Recorded | None:
        """The best placement searched on the training trace."""
        heldout = [each for each in self.recorded if each.protocol == "heldout"]
        return max(heldout, key=lambda each: each.attainment, default=None)


def read_cases(path: Path) -> list[Case]:
    """Reads cases; profiles and traces are looked for beside the file. InvalidArgumentError names what is missing."""
    document = json.loads(read_text(path))
    profiles = read_profiles(path.parent / document["meta"].get("profiles", "v100_profiles.json"))
    return [_case(entry, profiles, path.parent) for entry in document["cases"]]


def read_profiles(path: Path, *, hardware: str = "V100") -> dict[str, tuple[StageProfile, ...]]:
    """Reads stage profiles, by kind of model."""
    document = Field(value=json.loads(read_text(path)), path=path.name)
    found: dict[str, tuple[StageProfile, ...]] = {}
    for profile in alpaserve.read(document, hardware=hardware, created_at_s=0.0):
        found[profile.model] = (*found.get(profile.model, ()), profile)
    return found


def read_trace(path: Path, models: Sequence[str]) -> Workload:
    """Reads rows of time_s, model, slo_s; compressed where only PATH.gz is there."""
    number = {name: index for index, name in enumerate(models)}
    rows = list(csv.DictReader(read_text(path).splitlines()))
    unknown = next((row["model"] for row in rows if row["model"] not in number), None)
    if unknown is not None:
        raise InvalidArgumentError(f"{path.name} has requests for {unknown!r}, which is no model of the case.")
    return Workload(
        models=tuple(models),
        arrival_s=np.array([float(row["time_s"]) for row in rows]),
        model=np.array([number[row["model"]] for row in rows], np.int32),
        slo_s=np.array([float(row["slo_s"]) for row in rows]),
    )


def read_text(path: Path) -> str:
    packed = path.with_name(f"{path.name}.gz")
    if path.exists():
        return path.read_text()
    if packed.exists():
        return gzip.decompress(packed.read_bytes()).decode()
    raise InvalidArgumentError(f"There is no {path}, nor {packed.name}.", hint="Give CASES=file.json.")


def as_document(placement: Placement, models: Sequence[PlacedModel]) -> dict[str, Any]:
    """Writes a placement in the format of the cases: models by their number."""
    number = {model.name: index for index, model in enumerate(models)}
    return {
        "groups": [
            {"pp": group.shape.pp, "op": group.shape.op, "models": [number[name] for name in group.models]}
            for group in placement.groups
        ]
    }


def as_placement(document: Mapping[str, Any], models: Sequence[PlacedModel]) -> Placement:
    return Placement(
        groups=tuple(
            PlacedGroup(
                shape=GroupShape(pp=entry["pp"], op=entry["op"]),
                models=tuple(models[index].name for index in entry["models"]),
            )
            for entry in document["groups"]
        )
    )


def _case(entry: Mapping[str, Any], profiles: Mapping[str, tuple[StageProfile, ...]], directory: Path) -> Case:
    for model in entry["models"]:
        if model["type"] not in profiles:
            raise InvalidArgumentError(f"Case {entry['id']}: there is no profile of {model['type']!r}.")
    models = tuple(PlacedModel(name=model["name"], profiles=profiles[model["type"]]) for model in entry["models"])
    names = [model.name for model in models]
    cluster = entry["cluster"]
    return Case(
        name=entry["id"],
        models=models,
        num_devices=cluster["num_devices"],
        memory_bytes=int(cluster["mem_budget_bytes"]),
        devices_per_node=cluster.get("num_devices_per_node", cluster["num_devices"]),
        train=read_trace(directory / entry["train_trace"], names),
        test=read_trace(directory / entry["trace"], names),
        recorded=tuple(_recorded(each, models) for each in entry.get("results", ())),
    )


def _recorded(result: Mapping[str, Any], models: Sequence[PlacedModel]) -> Recorded:
    placement = result.get("placement")
    return Recorded(
        policy=result["policy"],
        protocol=result["protocol"],
        attainment=result["slo_attainment"],
        search_s=result.get("search_s", 0.0),
        placement=as_placement(placement, models) if placement else None,
    )
