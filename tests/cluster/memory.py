"""How much memory the processes of a release have, each kind over time."""

import statistics
import time
from collections import defaultdict
from collections.abc import Iterator
from dataclasses import dataclass

import psutil

from tests.cluster.installation import Installation

_WARM_AFTER_S = 60.0
"""A process has what it imports and its first buffers by then."""
_MOST_GROWTH = 1.2
_MOST_GROWTH_BYTES = 16 * 2**20
_FEWEST_SAMPLES = 6
_MB = 2**20


@dataclass(frozen=True, slots=True)
class Sample:
    """What one process has of its own, in bytes, and for how long it has run."""

    kind: str
    process: tuple[int, float]
    age_s: float
    num_bytes: int


class Memory:
    """Samples of all processes of a release; of a cell, its own and those of its workers."""

    def __init__(self, served: Installation) -> None:
        self._served = served
        self._samples: list[Sample] = []

    def sample(self) -> None:
        first = self._served.node.first_processes()
        for pod in self._served.pods.all():
            kind = pod.component.partition("-")[0]
            for process, part in _parts(first[pod.container_id], kind):
                age_s = time.time() - process.create_time()
                key = (process.pid, process.create_time())
                self._samples.append(Sample(part, key, age_s, process.memory_full_info().uss))

    def table(self) -> str:
        """Of each kind: how much its processes have, those of the first third of the time and of the last."""
        lines = [f"{'process':<12} {'samples':>7} {'first third':>12} {'last third':>11} {'most':>7}  MB"]
        for kind, sizes in sorted(self._warm().items()):
            first, last, most = (num_bytes / _MB for num_bytes in (*_thirds(sizes), max(sizes)))
            lines.append(f"{kind:<12} {len(sizes):>7} {first:>12.0f} {last:>11.0f} {most:>7.0f}")
        return "\n".join(lines)

    def grown(self) -> list[str]:
        """Kinds, and single processes, that have more and more."""
        found = [_growth(kind, sizes) for kind, sizes in self._warm().items()]
        for process in {sample.process for sample in self._samples}:
            own = [each for each in self._samples if each.process == process and each.age_s > _WARM_AFTER_S]
            if own:
                name = f"a {own[0].kind} in {own[-1].age_s:.0f} s"
                found.append(_growth(name, [each.num_bytes for each in own]))
        return [growth for growth in found if growth]

    def _warm(self) -> dict[str, list[int]]:
        sizes = defaultdict[str, list[int]](list)
        for each in self._samples:
            if each.age_s > _WARM_AFTER_S:
                sizes[each.kind].append(each.num_bytes)
        return sizes


def _parts(pid: int, kind: str) -> Iterator[tuple[psutil.Process, str]]:
    """A container's processes, and what each is."""
    first = psutil.Process(pid)
    if kind != "worker":
        yield first, kind
        return
    yield first, "cell"
    for child in first.children(recursive=True):
        yield child, "worker"


def _thirds(sizes: list[int]) -> tuple[float, float]:
    third = max(1, len(sizes) // 3)
    return statistics.median(sizes[:third]), statistics.median(sizes[-third:])


def _growth(name: str, sizes: list[int]) -> str:
    """What is to be said of it; nothing where it has not grown, or was seen too seldom."""
    first, last = _thirds(sizes)
    is_grown = last > max(first * _MOST_GROWTH, first + _MOST_GROWTH_BYTES)
    return f"{name}: {first / _MB:.0f} MB became {last / _MB:.0f}" if is_grown and len(sizes) >= _FEWEST_SAMPLES else ""
