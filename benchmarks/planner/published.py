"""Llama 3.1 as torchtitan trained it on H100s (its benchmarks of December 2024), beside what the planner says of it.

Of its rows those without float8, or the ones nearest to that. The planner knows no selective recomputation, no float8
and no overlap of communication with work, so what has to agree is the order of the rows.
"""

from collections.abc import Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from pathlib import Path
from typing import Annotated

import typer
from rich.console import Console
from rich.table import Table

from benchmarks.machine import describe_machine
from benchmarks.planner.foretold import foretold
from benchmarks.planner.layout import Layout
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.precision import Precision

_SEQ = 8192
_NODE = "Grand Teton"
_GIB = 1024**3
_NEAR = 0.03
"""Rows that differ by less have no order."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Published:
    """A row of torchtitan's tables.

    Attributes:
        model: of `benchmarks.planner.llama3`.
        layout: of each of the pipeline's stages.
        num_micro_batches: of an iteration.
        tokens_per_s: of one GPU.
        memory_gib: of the GPU that holds most.
    """

    name: str
    model: str
    layout: Layout
    num_stages: int = 1
    num_micro_batches: int = 1
    tokens_per_s: float
    memory_gib: float

    @property
    def num_devices(self) -> int:
        return self.num_stages * self.layout.num_devices


@dataclass(frozen=True, slots=True, kw_only=True)
class PublishedRow:
    """What was measured and what is foretold, of one GPU."""

    name: str
    num_devices: int
    tokens_per_s: float
    foretold_tokens_per_s: float
    memory_gib: float
    foretold_memory_gib: float


_FSDP = Layout(micro_batch=16, data=8, zero_stage=3, recomputes=True, precision=Precision.BFLOAT16)
ROWS = (
    Published(name="8B, FSDP 8", model="llama_8b", layout=_FSDP, tokens_per_s=5762, memory_gib=82.4),
    Published(
        name="8B, FSDP 128",
        model="llama_8b",
        layout=replace(_FSDP, micro_batch=256, data=128),
        tokens_per_s=5605,
        memory_gib=67.0,
    ),
    Published(
        name="70B, FSDP 32, TP 8",
        model="llama_70b",
        layout=replace(_FSDP, micro_batch=512, data=32, tensor=8),
        tokens_per_s=829,
        memory_gib=71.9,
    ),
    Published(
        name="405B, FSDP 8, TP 8, PP 8",
        model="llama_405b",
        layout=replace(_FSDP, micro_batch=32, tensor=8),
        num_stages=8,
        num_micro_batches=8,
        tokens_per_s=100,
        memory_gib=82.5,
    ),
)


def foretell(row: Published) -> PublishedRow:
    found = foretold(
        f"benchmarks.planner.llama3:{row.model}",
        row.layout,
        node=_NODE,
        seq=_SEQ,
        num_stages=row.num_stages,
        num_micro_batches=row.num_micro_batches,
    )
    tokens = row.num_micro_batches * row.layout.micro_batch * _SEQ
    return PublishedRow(
        name=row.name,
        num_devices=row.num_devices,
        tokens_per_s=row.tokens_per_s,
        foretold_tokens_per_s=tokens / found.iteration_s / row.num_devices,
        memory_gib=row.memory_gib,
        foretold_memory_gib=max(stage.memory.total_bytes for stage in found.stages) / _GIB,
    )


def misses(rows: Sequence[PublishedRow]) -> list[str]:
    """Pairs of rows whose order is not kept, in sentences."""
    found = []
    for first, second in combinations(rows, 2):
        for figure in ("tokens_per_s", "memory_gib"):
            measured, said = (getattr(first, name) / getattr(second, name) for name in (figure, f"foretold_{figure}"))
            if abs(measured - 1) > _NEAR and (measured > 1) is not (said > 1):
                found.append(f"{figure}, {first.name} over {second.name}: {measured:.2f}, and {said:.2f} foretold.")
    return found


def main(
    *, out: Annotated[Path, typer.Option(help="Where the result goes.")] = RESULTS_DIR / "planner-llama.json"
) -> None:
    """Foretell every row."""
    console, rows = Console(), [foretell(row) for row in ROWS]
    table = Table("row", "GPUs", "tokens/s", "foretold", "GiB", "foretold")
    for row in rows:
        table.add_row(
            row.name,
            str(row.num_devices),
            f"{row.tokens_per_s:,.0f}",
            f"{row.foretold_tokens_per_s:,.0f}",
            f"{row.memory_gib:.1f}",
            f"{row.foretold_memory_gib:.1f}",
        )
    console.print(table)
    missed = misses(rows)
    for miss in missed:
        console.print(miss, style="red")
    document = {"machine": asdict(describe_machine()), "rows": [asdict(row) for row in rows], "misses": missed}
    console.print(f"written to {write_result(out, document)}")


if __name__ == "__main__":
    typer.run(main)
