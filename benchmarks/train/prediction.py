"""Plans that are predicted well apart, trained one after the other: what they take beside what was predicted."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import product
from statistics import median

from benchmarks.train.computing import rank_correlation, train_execution
from benchmarks.train.gpt import Captured, Size, capture
from benchmarks.train.operators import OperatorTimes, part_programs
from headway.core.execution.execution import Execution
from headway.core.execution.simulator import ExecutionTimes, simulate

_APART = 1.05
_MICRO_BATCHES = (2, 4, 8, 16)


@dataclass(frozen=True, slots=True, kw_only=True)
class PredictionRow:
    """A plan of two stages.

    Attributes:
        cut: the first layer of the second one.
        by_operators_s, by_parts_s: of an iteration, simulated with parts made up of operators that were timed alone,
            and with parts that both ranks timed before the first step.
        seconds, least_s: measured, the median and the least.
    """

    cut: int
    micro_batch: int
    method: str
    recomputes: bool
    by_operators_s: float
    by_parts_s: float
    seconds: float
    least_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class _Planned:
    cut: int
    micro_batch: int
    method: str
    recomputes: bool
    execution: Execution
    seconds: float


def prediction_rows(size: Size, batch: int, steps: int) -> list[PredictionRow]:
    """Of all plans those of which each is predicted to take 5 % longer than the one before, at least. What is
    predicted by parts, and what is measured, follow each other at once, so that they see the same machine."""
    step = capture(size, _MICRO_BATCHES)
    rows = []
    for plan in _apart(sorted(_planned(step, batch), key=lambda plan: plan.seconds)):
        found = train_execution(step, plan.execution, steps=steps)
        rows.append(
            PredictionRow(
                cut=plan.cut,
                micro_batch=plan.micro_batch,
                method=plan.method,
                recomputes=plan.recomputes,
                by_operators_s=plan.seconds,
                by_parts_s=found.predicted_s,
                seconds=found.seconds,
                least_s=found.least_s,
            )
        )
    return rows


def _planned(step: Captured, batch: int) -> Iterator[_Planned]:
    times = OperatorTimes()
    for cut, micro_batch, recomputes in product(range(1, step.size.num_layers), _MICRO_BATCHES, (False, True)):
        method = "gpipe" if micro_batch == _MICRO_BATCHES[-1] else "1f1b"
        found = step.execution((cut,), batch=batch, micro_batch=micro_batch, method=method, recomputes=recomputes)
        parts = tuple(times.of_operators(program) for program in part_programs(found, step.programs))
        yield _Planned(
            cut=cut,
            micro_batch=micro_batch,
            method=method,
            recomputes=recomputes,
            execution=found,
            seconds=simulate(found, ExecutionTimes(parts=parts)).iteration_s,
        )


def _apart(plans: Sequence[_Planned]) -> Iterator[_Planned]:
    """Of plans in order, the first and each that takes 5 % longer than the one before it."""
    last_s = 0.0
    for plan in plans:
        if plan.seconds >= _APART * last_s:
            last_s = plan.seconds
            yield plan


def prediction_figures(rows: Sequence[PredictionRow]) -> dict[str, float]:
    """Errors are shares of what was measured."""
    return {
        "rank_correlation": rank_correlation([row.by_parts_s for row in rows], [row.seconds for row in rows]),
        "rank_correlation_by_operators": rank_correlation(
            [row.by_operators_s for row in rows], [row.seconds for row in rows]
        ),
        "median_error": median(abs(row.by_parts_s / row.seconds - 1) for row in rows),
        "median_error_by_operators": median(abs(row.by_operators_s / row.seconds - 1) for row in rows),
    }
