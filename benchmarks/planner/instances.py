"""Reads instances of Alpa's two searches, with the optima that a public implementation found."""

import gzip
import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.planner.inter.stage_dp import StageCosts
from headway.planner.intra.problem import Edge, HeldTensor, StrategyProblem

Floats = NDArray[np.float64]


@dataclass(frozen=True, slots=True, kw_only=True)
class StageInstance:
    """Attributes:
    optimum_s: what the reference found.
    reference_cpu_s: what its fast variant took; None where that is not known.
    """

    name: str
    costs: StageCosts
    num_devices: int
    num_micro_batches: int
    optimum_s: float
    reference_cpu_s: float | None


@dataclass(frozen=True, slots=True, kw_only=True)
class StrategyInstance:
    """Attributes:
    optimum: what the reference found, in the instance's own unit.
    reference_cpu_s: what it took with the same solver; None where that is not known.
    """

    name: str
    problem: StrategyProblem
    optimum: float
    reference_cpu_s: float | None


def read_instances(folder: Path) -> tuple[list[StageInstance], list[StrategyInstance]]:
    """All that `results.json` names.

    Raises:
        InvalidArgumentError: the folder has no such file.
    """
    path = folder / "results.json"
    if not path.exists():
        raise InvalidArgumentError(
            f"{folder} has no results.json.", hint="Name a folder of instances with CASES=DIR.", field="cases"
        )
    results = json.loads(path.read_text())
    stages = [_stage_instance(folder / case["file"], case) for case in results["dp"]]
    return stages, [instance for case in results["ilp"] for instance in _strategy_instances(folder, case)]


def _stage_instance(path: Path, case: dict[str, Any]) -> StageInstance:
    with np.load(path) as arrays:
        costs = StageCosts(
            latency_s=arrays["compute_cost"],
            max_successors=arrays["max_n_succ_stages"].astype(np.int32),
            num_devices=arrays["submeshes"].prod(axis=1).astype(np.int32),
        )
    return StageInstance(
        name=path.stem,
        costs=costs,
        num_devices=case["devices"],
        num_micro_batches=case["microbatches"],
        optimum_s=case["cost"],
        reference_cpu_s=case.get("fast_variant_cpu_s"),
    )


def _strategy_instances(folder: Path, case: dict[str, Any]) -> list[StrategyInstance]:
    """With the bound on memory, and without."""
    path = folder / case["file"]
    text = gzip.decompress(path.read_bytes()) if path.suffix == ".gz" else path.read_bytes()
    name = path.name.split(".json")[0]
    return [
        StrategyInstance(
            name=name,
            problem=_problem(json.loads(text), with_memory=True),
            optimum=case["objective"],
            reference_cpu_s=case.get("highs_cpu_s"),
        ),
        StrategyInstance(
            name=f"{name}, no bound on memory",
            problem=_problem(json.loads(text), with_memory=False),
            optimum=case["objective_without_memory"],
            reference_cpu_s=None,
        ),
    ]


def _problem(document: dict[str, Any], *, with_memory: bool) -> StrategyProblem:
    """Nodes that follow another one share its strategies; what two must not choose together costs infinity."""
    sizes = document["s_len"]
    starts = np.cumsum([0, *sizes])
    cost = np.array(document["c"], dtype=np.float64) + np.array(document["d"], dtype=np.float64)
    memory = np.array(document["m"], dtype=np.float64)
    leaders = [i if follows < 0 else follows for i, follows in enumerate(document["s_follow"])]
    nodes = {leader: at for at, leader in enumerate(sorted(set(leaders)))}
    costs: list[Floats] = [np.zeros(sizes[leader]) for leader in nodes]
    for i, leader in enumerate(leaders):
        costs[nodes[leader]] += cost[starts[i] : starts[i + 1]]
    edges: list[Edge] = []
    excluded = [np.where(values > 0, np.inf, 0.0) for values in _matrices(document["A"], document["v"], sizes)]
    matrices = [*_matrices(document["E"], document["r"], sizes), *excluded]
    pairs = zip([*document["E"][::2], *document["A"][::2]], [*document["E"][1::2], *document["A"][1::2]], strict=True)
    for (first, second), matrix in zip(pairs, matrices, strict=True):
        source, target = nodes[leaders[first]], nodes[leaders[second]]
        if source == target:
            costs[source] += np.diag(matrix)
        else:
            edges.append(Edge(source=source, target=target, cost_s=matrix))
    return StrategyProblem(
        cost_s=costs,
        edges=edges,
        tensors=[
            HeldTensor(node=nodes[leader], shard_bytes=memory[starts[i] : starts[i + 1]])
            for i, leader in enumerate(leaders)
        ],
        live=_live(document["L"], document["N"]),
        memory_limit_bytes=document["M"] if with_memory else None,
    )


def _matrices(pairs: list[int], values: list[float], sizes: list[int]) -> list[Floats]:
    """One for each pair of nodes, which lie behind each other."""
    matrices, start = [], 0
    for first, second in zip(pairs[::2], pairs[1::2], strict=True):
        shape = sizes[first], sizes[second]
        size = shape[0] * shape[1]
        matrices.append(np.array(values[start : start + size], dtype=np.float64).reshape(shape))
        start += size
    return matrices


def _live(numbers: list[int], num_nodes: int) -> list[list[int]]:
    """The lengths of all sets come first, then the sets."""
    lists, start = [], num_nodes
    for length in numbers[:num_nodes]:
        lists.append(numbers[start : start + length])
        start += length
    return lists
