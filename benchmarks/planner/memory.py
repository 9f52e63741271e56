"""Memory foretold beside what PyTorch's MemTracker sees, for ten pairs of a model and a layout."""

from dataclasses import dataclass
from statistics import median

from benchmarks.planner.foretold import foretold
from benchmarks.planner.layout import Layout
from benchmarks.planner.tracked import tracked_bytes
from headway.core.precision import Precision

MEDIAN_ERROR = 0.05
MOST_TOO_LOW = 0.08
_HALF = Precision.BFLOAT16


@dataclass(frozen=True, slots=True, kw_only=True)
class Case:
    """Attributes:
    seq: tokens of an example; None for the model's own.
    """

    name: str
    model: str
    layout: Layout
    seq: int | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class MemoryRow:
    """Attributes:
    error: of what is foretold; below 0 it is too low.
    """

    case: str
    model: str
    foretold_bytes: int
    tracked_bytes: int

    @property
    def error(self) -> float:
        return self.foretold_bytes / self.tracked_bytes - 1


CASES = (
    Case(name="one device", model="alpa-gpt3-350m", layout=Layout(micro_batch=2)),
    Case(name="one device, recomputed", model="alpa-gpt3-350m", layout=Layout(micro_batch=4, recomputes=True)),
    Case(name="one device, bfloat16", model="bert-large", layout=Layout(micro_batch=8, precision=_HALF)),
    Case(name="data 4", model="bert-base", layout=Layout(micro_batch=32, data=4)),
    Case(name="data 2", model="wide-resnet-250m", layout=Layout(micro_batch=32, data=2)),
    Case(
        name="ZeRO-2 on 8, bfloat16",
        model="alpa-gpt3-1.3b",
        layout=Layout(micro_batch=16, data=8, zero_stage=2, precision=_HALF),
    ),
    Case(name="ZeRO-3 on 4", model="alpa-gpt3-350m", layout=Layout(micro_batch=8, data=4, zero_stage=3)),
    Case(
        name="ZeRO-3 on 8, bfloat16, recomputed",
        model="llama-7b",
        seq=2048,
        layout=Layout(micro_batch=16, data=8, zero_stage=3, recomputes=True, precision=_HALF),
    ),
    Case(name="tensor 4", model="alpa-gpt3-350m", layout=Layout(micro_batch=4, tensor=4)),
    Case(name="data 2 x tensor 4", model="alpa-gpt3-1.3b", layout=Layout(micro_batch=4, data=2, tensor=4)),
)


def compare(case: Case) -> MemoryRow:
    (stage,) = foretold(case.model, case.layout, seq=case.seq).stages
    return MemoryRow(
        case=case.name,
        model=case.model,
        foretold_bytes=stage.memory.total_bytes,
        tracked_bytes=tracked_bytes(case.model, case.layout, seq=case.seq),
    )


def misses(rows: list[MemoryRow]) -> list[str]:
    """The targets that are not met, in sentences."""
    found = []
    middle = median(abs(row.error) for row in rows)
    if middle >= MEDIAN_ERROR:
        found.append(f"The median error is {middle:.1%}, not under {MEDIAN_ERROR:.0%}.")
    found += [
        f"{row.model}, {row.case}: foretold {-row.error:.1%} too low." for row in rows if row.error < -MOST_TOO_LOW
    ]
    return found
