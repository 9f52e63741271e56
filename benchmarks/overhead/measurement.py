"""One measurement: a Headway stack of its own, loaded through its front door and around it."""

import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

from benchmarks.model import MODEL_NAME
from benchmarks.overhead.comparison import Overhead, alternate, overhead
from benchmarks.overhead.direct import DirectClient
from benchmarks.serve.peers import Deployment, launch_headway
from benchmarks.serve.server import Server, ServerError, free_port
from benchmarks.serve.workload import WorkloadSpec, make_workload
from headway.client import AsyncClient
from headway.client.token import find_token

NUM_WARM_UP = 16
NUM_CAPACITY = 64
WARM_UP_SEED, CAPACITY_SEED, MEASURE_SEED = 1, 2, 3

Progress = Callable[[str], None]


@dataclass(frozen=True, slots=True, kw_only=True)
class Shape:
    """Requests of equal size, so that the two ways differ in nothing else."""

    num_prompt_tokens: int
    num_output_tokens: int

    def workload(self, num_requests: int, *, seed: int, rate_per_s: float | None = None) -> WorkloadSpec:
        return WorkloadSpec(
            num_requests=num_requests,
            rate_per_s=rate_per_s,
            seed=seed,
            prompt_mean=self.num_prompt_tokens,
            prompt_sigma=0.0,
            output_mean=self.num_output_tokens,
            output_sigma=0.0,
        )


@dataclass(frozen=True, slots=True, kw_only=True)
class Measurement:
    """The load that both ways shared, and what the longer one added."""

    rate_per_s: float
    shape: Shape
    overhead: Overhead


async def measure(
    model_dir: Path, shape: Shape, *, num_requests: int, rate_per_s: float | None, progress: Progress
) -> Measurement:
    """Start Headway, load it, end it. Without a rate, the load is half of what a burst shows to be possible."""
    with tempfile.TemporaryDirectory(prefix="headway-bench-") as scratch:
        state_dir = Path(scratch) / "state"
        deployment = Deployment(model_name=MODEL_NAME, model_dir=model_dir, port=free_port(), state_dir=state_dir)
        launch = launch_headway(deployment)
        server = Server("headway", deployment=deployment, launch=launch, log_path=Path(scratch) / "server.log")
        try:
            progress("headway: starting")
            await server.start()
            endpoint = await worker_endpoint(deployment.state_dir)
            token = find_token(deployment.state_dir)
            await server.client.run(shape.workload(NUM_WARM_UP, seed=WARM_UP_SEED))
            rate_per_s = rate_per_s or await capacity_per_s(server, shape) / 2
            progress(f"headway: {num_requests} requests, {rate_per_s:.1f}/s, every other one to {endpoint}")
            spec = shape.workload(num_requests, seed=MEASURE_SEED, rate_per_s=rate_per_s)
            return Measurement(
                rate_per_s=rate_per_s, shape=shape, overhead=await both_ways(server, endpoint, spec, token=token)
            )
        finally:
            await server.stop()


async def both_ways(server: Server, endpoint: str, spec: WorkloadSpec, *, token: str | None) -> Overhead:
    """Load the gateway and the worker's own endpoint in turns; one request warms the direct way up."""
    async with DirectClient(endpoint, model=server.client.model, token=token) as direct:
        (probe,) = make_workload(WorkloadSpec(num_requests=1, seed=WARM_UP_SEED, output_mean=4))
        await direct.prepare(probe)(0.0)
        through, around = await alternate(spec, through=server.client.prepare, direct=direct.prepare)
    return overhead(through, around)


async def worker_endpoint(state_dir: Path) -> str:
    """host:port of the only worker's gRPC server."""
    async with AsyncClient(state_dir=state_dir) as client:
        groups = (await client.status()).fleet.groups
    if len(groups) != 1:
        raise ServerError(f"the stack has {len(groups)} worker groups; this benchmark needs exactly one")
    return groups[0].endpoint


async def capacity_per_s(server: Server, shape: Shape) -> float:
    """Requests per second that a burst gets through."""
    result = await server.client.run(shape.workload(NUM_CAPACITY, seed=CAPACITY_SEED))
    return NUM_CAPACITY / result.wall_s
