"""Two servers, the same bursts in turns, and what is said about their times."""

import pytest
from rich.console import Console

from benchmarks.prefix.__main__ import prefix_table
from benchmarks.prefix.measurement import Measurement, alternate
from benchmarks.serve.workload import WorkloadSpec
from tests.benchmarks.conftest import MakeServer

SPEC = WorkloadSpec(num_requests=2, prompt_mean=8, prompt_sigma=0.0, output_mean=4, shared_prefix_tokens=16)


async def test_bursts_alternate_and_are_timed(make_server: MakeServer) -> None:
    lines: list[str] = []
    found = await alternate(make_server("on"), make_server("off"), SPEC, repeats=2, progress=lines.append)
    assert [line.partition(":")[0] for line in lines if "run" in line] == ["on", "off"] * 2
    assert len(found.on_s) == len(found.off_s) == 2
    assert found.num_failures == 0


def test_ratio_is_the_median_over_runs() -> None:
    found = Measurement(on_s=(1.0, 2.0, 9.0), off_s=(4.0, 4.0, 10.0), num_failures=0)
    assert found.ratio == pytest.approx(0.5)
    console = Console(record=True, width=100)
    console.print(prefix_table(found, SPEC))
    text = console.export_text()
    assert "0.50" in text
    assert "at most 0.33" in text
