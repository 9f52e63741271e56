"""Two servers on the same model and requests, in turns."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass, field
from typing import Any

from benchmarks.serve.client import LoadResult
from benchmarks.serve.scenario import Scenario
from benchmarks.serve.server import Server, ServerError, StartTimes
from benchmarks.serve.summary import Summary, median_figures, summarise
from benchmarks.serve.workload import WorkloadSpec

WARM_UP = WorkloadSpec(num_requests=16, seed=999_983, output_mean=32)
SETTLE_S = 2.0  # after the warm-up, before idleness is measured
# Before each run, lest one server's afterglow (threads that spin, a log written late) slows the other one's start.
QUIET_CPU_SHARE = 0.1
QUIET_LIMIT_S = 30.0

Progress = Callable[[str], None]


@dataclass(slots=True, kw_only=True)
class ServerRecord:
    """What one server has shown so far.

    Attributes:
        start: None for a server that was running before.
        peak_pss_bytes: largest sum of its processes' memory seen after a run.
        runs: every run's figures, by scenario.
    """

    name: str
    start: StartTimes | None = None
    idle_cpu_share: float = 0.0
    peak_pss_bytes: int = 0
    runs: dict[Scenario, list[Summary]] = field(default_factory=dict)
    failures: list[LoadResult] = field(default_factory=list)

    def figures(self, scenario: Scenario) -> dict[str, float | None]:
        """Each figure's median over the repeats."""
        return median_figures(self.runs[scenario])


async def compare(
    servers: Sequence[Server], loads: Sequence[Scenario], *, repeats: int, progress: Progress
) -> list[ServerRecord]:
    """Start all servers, then load them in turns (A B A B ...), one at a time; ends them whatever happens."""
    server_records = [ServerRecord(name=server.name) for server in servers]
    try:
        for server, server_record in zip(servers, server_records, strict=True):
            progress(f"{server.name}: starting")
            server_record.start = await server.start()
            progress(f"{server.name}: first token after {server_record.start.first_token_s:.1f} s, warming up")
            await server.client.run(WARM_UP)
        await asyncio.sleep(SETTLE_S)
        for server_record, share in zip(server_records, await idle_cpu_shares(servers, seconds=2.0), strict=True):
            server_record.idle_cpu_share = share
        for scenario in loads:
            for repeat in range(repeats):
                for server, server_record in zip(servers, server_records, strict=True):
                    await wait_until_quiet(servers)
                    await measure(server, server_record, scenario, repeat=repeat, progress=progress)
    finally:
        for server in servers:
            await server.stop()
    return server_records


async def wait_until_quiet(servers: Sequence[Server]) -> None:
    """Return once no server uses the processor; raise ServerError if one does not stop."""
    give_up_s = time.monotonic() + QUIET_LIMIT_S
    while max(shares := await idle_cpu_shares(servers, seconds=1.0)) > QUIET_CPU_SHARE:
        if time.monotonic() > give_up_s:
            busiest = servers[shares.index(max(shares))]
            raise ServerError(f"{busiest.name} was still computing {QUIET_LIMIT_S:.0f} s after its last request")


async def idle_cpu_shares(servers: Sequence[Server], *, seconds: float) -> list[float]:
    """Cores that each uses while nobody asks anything, all during the same time."""
    return await asyncio.gather(*(server.idle_cpu_share(seconds=seconds) for server in servers))


async def measure(
    server: Server, server_record: ServerRecord, scenario: Scenario, *, repeat: int, progress: Progress
) -> None:
    """One run of one scenario on one server."""
    result = await server.client.run(scenario.spec(repeat))
    summary = summarise(result)
    server_record.runs.setdefault(scenario, []).append(summary)
    server_record.peak_pss_bytes = max(server_record.peak_pss_bytes, server.pss_bytes())
    if summary.num_failures:
        server_record.failures.append(result)
    progress(
        f"{server.name}: {scenario.title}, run {repeat + 1}: "
        f"{summary.output_tokens_per_s:.0f} tokens/s, {summary.num_failures} failures"
    )


def record_document(server_record: ServerRecord) -> dict[str, Any]:
    """A server's part of the result file."""
    return {
        "start": asdict(server_record.start) if server_record.start else None,
        "idle_cpu_share": server_record.idle_cpu_share,
        "peak_pss_bytes": server_record.peak_pss_bytes,
        "scenarios": [
            {
                "title": scenario.title,
                "workload": asdict(scenario),
                "median": server_record.figures(scenario),
                "runs": [asdict(summary) for summary in runs],
            }
            for scenario, runs in server_record.runs.items()
        ],
    }
