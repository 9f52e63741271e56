"""Bursts with a shared prefix, sent to two servers in turns."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from statistics import median

from benchmarks.serve.comparison import WARM_UP, wait_until_quiet
from benchmarks.serve.server import Server
from benchmarks.serve.workload import WorkloadSpec

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """Seconds of each burst, from the first request sent to the last answer over."""

    on_s: tuple[float, ...]
    off_s: tuple[float, ...]
    num_failures: int

    @property
    def ratio(self) -> float:
        """Median of what a burst takes with the cache as a share of what it takes without."""
        return median(on_s / off_s for on_s, off_s in zip(self.on_s, self.off_s, strict=True))


async def alternate(
    with_cache: Server, without: Server, spec: WorkloadSpec, *, repeats: int, progress: Progress
) -> Measurement:
    """Start both, send each the same bursts in turns, end both. No burst's prefix was seen before."""
    servers = (with_cache, without)
    times_s: dict[str, list[float]] = {server.name: [] for server in servers}
    num_failures = 0
    try:
        for server in servers:
            progress(f"{server.name}: starting")
            await server.start()
            await server.client.run(WARM_UP)
        for repeat in range(repeats):
            for server in servers:
                await wait_until_quiet(servers)
                result = await server.client.run(replace(spec, seed=spec.seed + repeat))
                times_s[server.name].append(result.wall_s)
                num_failures += sum(bool(outcome.error) for outcome in result.outcomes)
                progress(f"{server.name}: run {repeat + 1}: {result.wall_s:.2f} s")
    finally:
        for server in servers:
            await server.stop()
    return Measurement(
        on_s=tuple(times_s[with_cache.name]), off_s=tuple(times_s[without.name]), num_failures=num_failures
    )
