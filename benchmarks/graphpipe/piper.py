"""Piper's inputs by Piper's own measure (Tarnawski et al. 2021): time per sample of chains of stages.

A stage is a difference of downsets with a degree of tensor and of data parallelism, and its operators recompute or not.
"""

import json
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Annotated

import numpy as np
import typer
from numba import njit
from numpy.typing import NDArray
from rich.console import Console

from benchmarks.machine import describe_machine
from benchmarks.serve.report import RESULTS_DIR, write_result

Floats = NDArray[np.float64]
Ints = NDArray[np.int64]

_GIB = 1 << 30
_MOST_SETS = 30_000
_MOST_PAIRS = 100_000
_BYTES_PER_S = 25 * _GIB
"""Between devices: with it a single stage takes what Piper says of it; the inputs have 25 GB/s."""
_NARROWED = 0.02
_TARGETS_S = {("bert32a100", 64): 0.2, ("gnmt", 2): 60.0}
_SYNCHRONISED = 4  # times a parameter crosses a link, as Piper counts it after PipeDream

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Question:
    """Operators with their costs by degree of tensor parallelism and by way to compute.

    Attributes:
        sets: [downsets, operators]; whether an operator is in a set that is closed under successors, small ones first.
        degrees: [degrees]; of tensor parallelism.
        seconds, parameters, kept, fixed: [operators, degrees, ways]; seconds of a sample, bytes that data-parallel
            devices synchronise, and bytes that are held for each micro-batch in flight and once. Infinite seconds
            where a degree is not possible.
        edges: [edges, 2]; from and to.
        sent: [edges, degrees]; bytes that cross, with what is synchronised on the sending and the receiving side:
            [edges, degrees, 2].
    """

    sets: NDArray[np.bool_]
    degrees: Ints
    seconds: Floats
    parameters: Floats
    kept: Floats
    fixed: Floats
    edges: Ints
    sent: Floats
    bytes_per_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    tps, piper_tps: in the input's own unit.
    cpu_s: of the search, compiled.
    """

    case: str
    devices: int
    memory_gib: float
    tps: float
    piper_tps: float
    cpu_s: float
    target_s: float | None


def main(
    *,
    cases: Annotated[Path, typer.Option(help="The directory of Piper's inputs, with what it found in results.json.")],
    out: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS_DIR / "graphpipe-piper.json",
) -> None:
    """Search each input that Piper has a result of."""
    rows = []
    for row in rows_of(cases):
        rows.append(row)
        console.print(row)
    document = {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows]}
    console.print(f"written to {write_result(out, document)}")


def rows_of(cases: Path) -> Iterator[Row]:
    for found in json.loads((cases / "results.json").read_text())["rows"]:
        document = json.loads((cases / f"{found['input']}.json").read_text())
        limits = {"devices": found["devices"], "memory_bytes": found["memory_gib"] * _GIB, "batch": found["mbs"]}
        question = read(document)
        least_time_per_sample(question, **limits)  # compiled
        began_s = time.process_time()
        tps = least_time_per_sample(question, **limits)
        yield Row(
            case=found["input"],
            devices=found["devices"],
            memory_gib=found["memory_gib"],
            tps=tps,
            piper_tps=found["piper_tps"],
            cpu_s=time.process_time() - began_s,
            target_s=_TARGETS_S.get((found["input"], found["devices"])),
        )


def read(document: dict) -> Question:  # type: ignore[type-arg]
    """A question out of Piper's JSON."""
    nodes = document["nodes"]
    place = {node["id"]: at for at, node in enumerate(nodes)}
    degrees = sorted({int(degree) for node in nodes for degree in node["TMPCs"]})
    ways = max(len(each) for node in nodes for each in node["TMPCs"].values())
    shape = len(nodes), len(degrees), ways
    seconds, parameters, kept, fixed = np.full(shape, np.inf), np.zeros(shape), np.zeros(shape), np.zeros(shape)
    pairs = [(place[each["sourceId"]], place[each["destId"]]) for each in document["edges"]]
    edges = np.array(pairs, np.int64).reshape(-1, 2)
    sent = np.zeros((len(edges), len(degrees), 2))
    at_edge = {(int(a), int(b)): number for number, (a, b) in enumerate(edges)}
    for at, node in enumerate(nodes):
        for degree, own in node["TMPCs"].items():
            t = degrees.index(int(degree))
            for way, each in enumerate(own):
                seconds[at, t, way], parameters[at, t, way] = each["timePerSample"], each["parameterSize"]
                kept[at, t, way], fixed[at, t, way] = each["memoryUsageA"], each["memoryUsageB"]
            for other, num_bytes in own[0]["syncTimeBw"].items():
                sent[at_edge[at, place[int(other)]], t, 0] = num_bytes
            for other, num_bytes in own[0]["syncTimeFw"].items():
                sent[at_edge[place[int(other)], at], t, 1] = num_bytes
    sent += np.array([each["communicationCost"] for each in document["edges"]], np.float64)[:, None, None]
    return Question(
        sets=_downsets(len(nodes), edges),
        degrees=np.array(degrees, np.int64),
        seconds=seconds,
        parameters=parameters,
        kept=kept,
        fixed=fixed,
        edges=edges,
        sent=sent,
        bytes_per_s=_BYTES_PER_S,
    )


def _downsets(num_operators: int, edges: Ints) -> NDArray[np.bool_]:
    """Sets that hold all successors of their members, small ones first.

    Raises:
        ValueError: there are too many.
    """
    after = [0] * num_operators
    for first, second in edges.tolist():
        after[first] |= 1 << second
    found, front = {0}, {0}
    while front:
        front = {
            members | 1 << at
            for members in front
            for at in range(num_operators)
            if not members >> at & 1 and after[at] & ~members == 0
        }
        found |= front
        if len(found) > _MOST_SETS:
            raise ValueError(f"more than {_MOST_SETS} downsets")
    order = sorted(found, key=lambda members: (members.bit_count(), members))
    return np.array([[members >> at & 1 for at in range(num_operators)] for members in order], np.bool_)


def least_time_per_sample(question: Question, *, devices: int, memory_bytes: float, batch: int) -> float:
    """The least time per sample of the slowest stage; infinite where nothing fits.

    Args:
        batch: micro-batches of an iteration, which data-parallel degrees divide.

    Raises:
        ValueError: there are too many stages to try.
    """
    pairs = _pairs(question.sets, devices)
    splits = np.array([d for d in range(1, devices + 1) if batch % d == 0], np.int64)
    loads = _loads(
        question.sets,
        pairs,
        question.degrees,
        splits,
        question.seconds,
        question.parameters,
        question.kept,
        question.fixed,
        question.edges,
        question.sent,
        np.array([question.bytes_per_s, memory_bytes, float(batch)]),
        devices,
    )

    def fits(bound: float) -> bool:
        return bool(_fits(pairs, loads, question.degrees, splits, len(question.sets), devices, bound))

    most = float(loads.max(where=np.isfinite(loads), initial=0.0))
    if not fits(most):
        return float("inf")
    least = 0.0
    while most - least > _NARROWED * most:
        middle = (least + most) / 2
        least, most = (least, middle) if fits(middle) else (middle, most)
    values = np.unique(loads[(loads > least) & (loads <= most)])
    low, high = 0, len(values) - 1
    while low < high:
        middle_at = (low + high) // 2
        low, high = (low, middle_at) if fits(values[middle_at]) else (middle_at + 1, high)
    return float(values[low])


def _pairs(sets: NDArray[np.bool_], devices: int) -> Ints:
    """[stages, 2]: the set behind a stage and the one with it, sorted by the second. With two devices a stage is the
    first or the last one."""
    last = len(sets) - 1
    found = []
    for outer in range(1, last + 1):
        inside = np.flatnonzero((~sets[:outer] | sets[outer]).all(axis=1)) if devices > 2 or outer == last else [0]
        found += [(int(inner), outer) for inner in inside]
        if len(found) > _MOST_PAIRS:
            raise ValueError(f"more than {_MOST_PAIRS} stages")
    return np.array(found, np.int64)


@njit(cache=True, nogil=True)
def _loads(  # noqa: C901, PLR0912 - compiled loops over stages, degrees and ways
    sets: NDArray[np.bool_],
    pairs: Ints,
    degrees: Ints,
    splits: Ints,
    seconds: Floats,
    parameters: Floats,
    kept: Floats,
    fixed: Floats,
    edges: Ints,
    sent: Floats,
    limits: Floats,
    devices: int,
) -> Floats:
    """[stages, degrees, splits, in flight + 1]; time per sample, infinite where a stage does not fit."""
    num_operators, num_ways = seconds.shape[0], seconds.shape[2]
    found = np.full((len(pairs), len(degrees), len(splits), devices + 1), np.inf)
    cost, held = np.empty((num_operators, num_ways)), np.empty((num_operators, num_ways))
    members, ways = np.empty(num_operators, np.int64), np.empty(num_operators, np.int64)
    for pair in range(len(pairs)):
        inner, outer = sets[pairs[pair, 0]], sets[pairs[pair, 1]]
        count = 0
        for at in range(num_operators):
            if outer[at] and not inner[at]:
                members[count] = at
                count += 1
        for t in range(len(degrees)):
            crossing = 0.0
            for edge in range(len(edges)):
                first, second = edges[edge]
                first_in, second_in = outer[first] and not inner[first], outer[second] and not inner[second]
                if first_in and not second_in:
                    crossing += 2 * sent[edge, t, 0]
                elif second_in and not first_in:
                    crossing += 2 * sent[edge, t, 1]
            for d in range(len(splits)):
                split = splits[d]
                if split * degrees[t] > devices:
                    continue
                base = crossing / split / limits[0]
                fast = fast_kept = fast_fixed = 0.0
                for i in range(count):
                    for way in range(num_ways):
                        synchronised = _SYNCHRONISED * (split - 1) * parameters[members[i], t, way] / split / limits[2]
                        cost[i, way] = seconds[members[i], t, way] / split + synchronised / limits[0]
                    fastest = np.argmin(cost[i])
                    fast += cost[i, fastest]
                    fast_kept += kept[members[i], t, fastest]
                    fast_fixed += fixed[members[i], t, fastest]
                for in_flight in range(1, -(-devices // split) + 1):
                    if fast_kept * in_flight + fast_fixed <= limits[1]:
                        found[pair, t, d, in_flight] = base + fast
                        continue
                    for i in range(count):
                        for way in range(num_ways):
                            held[i, way] = kept[members[i], t, way] * in_flight + fixed[members[i], t, way]
                    load = _least(cost, held, ways, count, limits[1])
                    if load == np.inf:
                        break
                    found[pair, t, d, in_flight] = base + load
    return found


@njit(cache=True, nogil=True)
def _least(  # noqa: C901 - the same
    cost: Floats, held: Floats, ways: Ints, count: int, room: float
) -> float:
    """The least cost that was found of a way for each operator: each the fastest, then one after the other the one that
    saves most memory for its time; in the end each is as fast again as fits."""
    total = used = 0.0
    for i in range(count):
        ways[i] = np.argmin(cost[i])
        total += cost[i, ways[i]]
        used += held[i, ways[i]]
    if total == np.inf:
        return np.inf
    while used > room:
        best, best_i, best_way = np.inf, -1, -1
        for i in range(count):
            for way in range(cost.shape[1]):
                saved = held[i, ways[i]] - held[i, way]
                if saved > 0:
                    price = (cost[i, way] - cost[i, ways[i]]) / saved
                    if price < best:
                        best, best_i, best_way = price, i, way
        if best_i < 0:
            return np.inf
        total += cost[best_i, best_way] - cost[best_i, ways[best_i]]
        used += held[best_i, best_way] - held[best_i, ways[best_i]]
        ways[best_i] = best_way
    for i in range(count):
        fastest = np.argmin(cost[i])
        if used - held[i, ways[i]] + held[i, fastest] <= room:
            total += cost[i, fastest] - cost[i, ways[i]]
            used += held[i, fastest] - held[i, ways[i]]
            ways[i] = fastest
    return total


@njit(cache=True, nogil=True)
def _fits(pairs: Ints, loads: Floats, degrees: Ints, splits: Ints, num_sets: int, devices: int, bound: float) -> bool:
    """Whether all operators fit on the devices in stages that take no longer.

    A stage holds as many micro-batches as the data-parallel degrees from it on sum up to, by its own degree.
    """
    needed = np.full((num_sets, devices + 1), devices + 1, np.int64)
    needed[0, 0] = 0
    for pair in range(len(pairs)):
        inner, outer = pairs[pair]
        for t in range(len(degrees)):
            for d in range(len(splits)):
                split = splits[d]
                if split * degrees[t] > devices:
                    break
                if loads[pair, t, d, 1] > bound:
                    continue
                for behind in range(devices - split + 1):
                    if needed[inner, behind] > devices:
                        continue
                    total = behind + split
                    if loads[pair, t, d, -(-total // split)] > bound:
                        break
                    needed[outer, total] = min(needed[outer, total], needed[inner, behind] + split * degrees[t])
    return bool(needed[num_sets - 1].min() <= devices)


if __name__ == "__main__":
    typer.run(main)
