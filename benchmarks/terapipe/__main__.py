"""TeraPipe's slicing of every recorded setting, beside the schemes of the public code and of the dissertation: all
evaluated by one function."""

import json
import time
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import typer
from rich.console import Console
from rich.table import Table
from typer import Option

from benchmarks.figure import FIGURES_DIR, panels, save
from benchmarks.serve.report import RESULTS_DIR, write_result
from headway.core.slice_profile import SliceProfile
from headway.planner.terapipe.profiled import slice_times
from headway.planner.terapipe.scheme import BatchSlice, Scheme, SliceTimes, uniform
from headway.planner.terapipe.slicing import slice_batch
from headway.profiler.formats import terapipe
from headway.profiler.formats.document import read_document

TARGETS_S = {(2048, 2): 1.0, (2048, 8): 3.0, (8192, 2): 10.0}
UNIFORM = (1, 2, 4, 8, 16, 32, 64, 128)

console = Console()


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """Attributes:
    iteration_s: of our scheme; all others are of the same function.
    cpu_s: of the search, with everything compiled.
    public_s: of the public code's scheme; None where none is recorded.
    paper_s: of the dissertation's scheme.
    whole_s: of the best scheme whose slices are whole sequences.
    uniform_s: of the best equal slices of single sequences.
    paper_speed_up: measured in the dissertation, over whole sequences.
    paper_uniform_s: measured in the dissertation, by the number of equal slices of single sequences.
    our_uniform_s: of the same by our function.
    """

    setting: str
    model: str
    batch: int
    seq_len: int
    num_stages: int
    iteration_s: float
    cpu_s: float
    target_cpu_s: float | None
    num_bounds: int
    public_s: float | None
    paper_s: float | None
    whole_s: float
    uniform_s: float
    paper_speed_up: float | None
    paper_uniform_s: dict[str, float] = field(default_factory=dict)
    our_uniform_s: dict[str, float] = field(default_factory=dict)

    @property
    def speed_up(self) -> float:
        return self.whole_s / self.iteration_s

    @property
    def paper_scheme_speed_up(self) -> float | None:
        """Of the dissertation's own slices, by our function."""
        return None if self.paper_s is None else self.whole_s / self.paper_s

    @property
    def is_met(self) -> bool:
        """No worse than any recorded scheme, in the time allowed."""
        known = [each for each in (self.public_s, self.paper_s) if each is not None]
        is_best = all(self.iteration_s <= each * (1 + 1e-12) for each in known)
        return is_best and (self.target_cpu_s is None or self.cpu_s <= self.target_cpu_s)


def main(
    *,
    cases: Annotated[Path, Option(help="Folder with synthetic_latency.json.gz, golden.json and paper_tables.json.")],
    out: Annotated[Path, Option(help="Where the result goes.")] = RESULTS_DIR / "terapipe.json",
    figures: Annotated[Path, Option(help="Where the figure goes.")] = FIGURES_DIR,
) -> None:
    """Slice every setting and compare."""
    rows = list(_rows(cases))
    table = Table(
        "setting",
        "B",
        "L",
        "K",
        "ours, s",
        "public",
        "paper's",
        "CPU s",
        "over whole",
        "paper's slices",
        "paper",
        "over uniform",
        "met",
    )
    for row in rows:
        table.add_row(
            row.setting,
            str(row.batch),
            str(row.seq_len),
            str(row.num_stages),
            f"{row.iteration_s:.5f}",
            "" if row.public_s is None else f"{row.public_s:.5f}",
            "" if row.paper_s is None else f"{row.paper_s:.5f}",
            f"{row.cpu_s:.2f}",
            f"{row.speed_up:.2f}x",
            "" if row.paper_scheme_speed_up is None else f"{row.paper_scheme_speed_up:.2f}x",
            "" if row.paper_speed_up is None else f"{row.paper_speed_up:.2f}x",
            f"{row.uniform_s / row.iteration_s:.4f}x",
            "yes" if row.is_met else "no",
        )
    console.print(table)
    rows_of = [
        {
            **asdict(row),
            "speed_up": row.speed_up,
            "paper_scheme_speed_up": row.paper_scheme_speed_up,
            "is_met": row.is_met,
        }
        for row in rows
    ]
    write_result(out, {"rows": rows_of})
    _draw(rows, figures)


def _draw(rows: Sequence[Row], directory: Path) -> None:
    lengths = [row for row in rows if "/" in row.setting]
    ablations = [row for row in rows if row.paper_uniform_s]
    titles = [f"Equal slices, setting {row.setting}" for row in ablations]
    figure, (series, *uniform) = panels("Over whole sequences, by length", *titles)
    for label, speed_ups in {
        "measured in the dissertation": [row.paper_speed_up or np.nan for row in lengths],
        "its slices, by our function": [row.paper_scheme_speed_up or np.nan for row in lengths],
        "our slices, by our function": [row.speed_up for row in lengths],
    }.items():
        series.plot([row.seq_len for row in lengths], speed_ups, marker="o", label=label)
    series.set_xlabel("tokens")
    series.set_ylabel("times as fast")
    series.legend(fontsize=7)
    for axes, row in zip(uniform, ablations, strict=True):
        numbers = [int(number) for number in row.paper_uniform_s]
        axes.plot(numbers, list(row.paper_uniform_s.values()), marker="o", label="measured in the dissertation")
        axes.plot(numbers, list(row.our_uniform_s.values()), marker="o", label="by our function")
        axes.axhline(row.iteration_s, color="gray", linewidth=1, label="best slices, by our function")
        axes.set_xscale("log", base=2)
        axes.set_xlabel("slices of each sequence")
        axes.set_ylabel("s an iteration")
        axes.legend(fontsize=7)
    save(figure, "terapipe", directory=directory)


def _rows(cases: Path) -> Iterator[Row]:
    profiles = terapipe.read(
        read_document((cases / "synthetic_latency.json.gz").read_bytes()), hardware="V100-16", created_at_s=0.0
    )
    public = json.loads((cases / "golden.json").read_text())["settings"]
    tables = json.loads((cases / "paper_tables.json").read_text())
    slice_batch(slice_times(profiles[0]), 1)  # compiles
    for profile in profiles:
        name = profile.setting
        yield _row(profile, public.get(name), tables["settings"].get(name), tables["uniform"].get(name, {}))


def _row(
    profile: SliceProfile, public: dict[str, Any] | None, paper: dict[str, Any] | None, measured: dict[str, float]
) -> Row:
    times = slice_times(profile)
    began_s = time.process_time()
    found = slice_batch(times, profile.batch)
    cpu_s = time.process_time() - began_s
    assert found is not None, "a recorded setting has times for all slices"
    public_scheme = (
        None if public is None else tuple(BatchSlice(size, tuple(tokens)) for size, tokens in public["scheme"])
    )
    paper_scheme = None if paper is None else (BatchSlice(1, tuple(paper["scheme"])),) * profile.batch
    return Row(
        setting=profile.setting,
        model=profile.model,
        batch=profile.batch,
        seq_len=profile.seq_len,
        num_stages=profile.pp,
        iteration_s=found.iteration_s,
        cpu_s=cpu_s,
        target_cpu_s=TARGETS_S.get((profile.seq_len, profile.batch)),
        num_bounds=found.num_bounds,
        public_s=_of(times, public_scheme),
        paper_s=_of(times, paper_scheme),
        whole_s=_whole(times, profile),
        uniform_s=min(times.iteration_s(uniform(profile.batch, profile.seq_len, num_slices=n)) for n in UNIFORM),
        paper_speed_up=None if paper is None else paper["wo"] / paper["tera"],
        paper_uniform_s=measured,
        our_uniform_s={
            number: times.iteration_s(uniform(profile.batch, profile.seq_len, num_slices=int(number)))
            for number in measured
        },
    )


def _of(times: SliceTimes, scheme: Scheme | None) -> float | None:
    return None if scheme is None else times.iteration_s(scheme)


def _whole(times: SliceTimes, profile: SliceProfile) -> float:
    sizes = [size for size in range(1, times.max_sequences + 1) if profile.batch % size == 0]
    return min(times.iteration_s((BatchSlice(s, (profile.seq_len,)),) * (profile.batch // s)) for s in sizes)


if __name__ == "__main__":
    typer.run(main)
