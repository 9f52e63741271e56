"""What the chapter found (4.5), asked of our cost model. What does not come out is said, not bent to fit."""

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from benchmarks.parallel.sweep import Point

LONG, SHORT, FROM = 50_000, 1_000, 10_000


@dataclass(frozen=True, slots=True, kw_only=True)
class Finding:
    """A sentence of the chapter, and the (batch, length) in which ours agrees with it and does not."""

    text: str
    agreeing: tuple[tuple[int, int], ...]
    differing: tuple[tuple[int, int], ...]


class Comparison:
    """Points of all layouts, by batch and length."""

    def __init__(self, points: Sequence[Point]) -> None:
        self._points = {(point.layout, point.batch, point.length): point for point in points}
        self._cases = sorted({(point.batch, point.length) for point in points})

    def check(self, text: str, holds: Callable[[Point, Point, Point], bool], *, least: int, most: int) -> Finding:
        """Asks `holds(dp, tp, cp)` for each batch and each length from `least` to `most`."""
        cases = [case for case in self._cases if least <= case[1] <= most]
        agreeing = tuple(case for case in cases if holds(*(self._points[name, *case] for name in ("dp", "tp", "cp"))))
        return Finding(text=text, agreeing=agreeing, differing=tuple(case for case in cases if case not in agreeing))

    def check_peak(self, text: str, *, layouts: Sequence[str], length: int) -> Finding:
        """Whether the largest batch gives less than a smaller one; asked for each layout."""
        batches = sorted({batch for batch, _ in self._cases})
        rates = {name: [self._points[name, batch, length].tokens_per_s for batch in batches] for name in layouts}
        falls = all(row[-1] < max(row) for row in rates.values())
        case = ((batches[-1], length),)
        return Finding(text=text, agreeing=case if falls else (), differing=() if falls else case)


def find(prefix: Sequence[Point], decode: Sequence[Point]) -> Iterator[Finding]:
    """Args: points of uneven prefixes, and of uneven decodes."""
    longest = max(point.length for point in prefix)
    for kind, points in (("prefixes", Comparison(prefix)), ("decodes", Comparison(decode))):
        yield points.check(f"dp is the slowest, long uneven {kind}", _is_dp_last, least=LONG, most=longest)
        yield points.check(f"cp is ahead of tp from 10K on, {kind}", _is_cp_ahead, least=FROM, most=longest)
    points = Comparison(prefix)
    yield points.check("tp is ahead of cp on short sequences", _is_tp_ahead, least=0, most=SHORT)
    yield points.check("cp communicates for less time than tp", _sends_cp_less, least=0, most=longest)
    yield points.check("tp has more overhead than cp", _manages_tp_more, least=0, most=longest)
    yield points.check("dp has the most overhead", _manages_dp_most, least=LONG, most=longest)
    yield points.check_peak(
        "past some batch long sequences lose throughput", layouts=("dp", "tp", "cp"), length=longest
    )


def _is_dp_last(dp: Point, tp: Point, cp: Point) -> bool:
    return dp.tokens_per_s < min(tp.tokens_per_s, cp.tokens_per_s)


def _is_cp_ahead(_: Point, tp: Point, cp: Point) -> bool:
    return cp.tokens_per_s > tp.tokens_per_s


def _is_tp_ahead(_: Point, tp: Point, cp: Point) -> bool:
    return tp.tokens_per_s > cp.tokens_per_s


def _sends_cp_less(_: Point, tp: Point, cp: Point) -> bool:
    return cp.cost.communication_s < tp.cost.communication_s


def _manages_tp_more(_: Point, tp: Point, cp: Point) -> bool:
    return tp.cost.overhead_s > cp.cost.overhead_s


def _manages_dp_most(dp: Point, tp: Point, cp: Point) -> bool:
    return dp.cost.overhead_s > max(tp.cost.overhead_s, cp.cost.overhead_s)
