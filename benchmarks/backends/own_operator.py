"""A network with an operator of the user's own in the middle, which no library knows."""

import os
from dataclasses import replace
from datetime import UTC, datetime

import torch
from torch import Tensor, nn

from benchmarks.backends.network import lap
from benchmarks.backends.row import CHOICE, Row
from headway.backends.compile import Compiler, capture_module
from headway.backends.contest import Contest
from headway.core.backend import BackendPlacement, Engine
from headway.core.backend_search import CandidatePrograms
from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.networks.resnet import ResNet
from headway.profiler.zoo.registry import find

NAME = "own-operator"


@torch.library.custom_op("headway_benchmark::swirl", mutates_args=())
def swirl(images: Tensor) -> Tensor:
    """Turns each row of an image one place further than the one above it."""
    height, width = images.shape[-2:]
    places = (torch.arange(width) + torch.arange(height)[:, None]) % width
    return images.gather(3, places.expand(images.shape)).contiguous()


@swirl.register_fake
def _(images: Tensor) -> Tensor:
    return torch.empty_like(images)


class Swirl(nn.Module):
    def forward(self, images: Tensor) -> Tensor:
        swirled: Tensor = torch.ops.headway_benchmark.swirl(images)
        return swirled


def swirled_resnext() -> nn.Module:
    """ResNeXt50 with the operator between its second and its third stage, weights from a seed."""
    torch.manual_seed(0)
    network = make_network(find("resnext50"), "cpu")
    assert isinstance(network, ResNet)
    network.stages.insert(2, Swirl())
    return network


def measure_own_operator(
    *, num_threads: int, time_limit_s: float, module: nn.Module | None = None, size: int = 224
) -> Row:
    """Compiles it, and times the choice beside each backend that runs it whole. All in this process, as another one
    does not know the operator."""
    torch.set_num_threads(num_threads)
    module = (module or swirled_resnext()).eval()
    images = torch.randn(1, 3, size, size, generator=torch.Generator().manual_seed(1))
    compiler = Compiler(num_threads=num_threads, time_limit_s=time_limit_s)
    compiled = compiler.compile(module, [images])
    assert compiled.plan is not None
    captured = capture_module(module, [images])
    programs = CandidatePrograms(captured.graph, captured.program)
    placements = {CHOICE: compiled.placement}
    for backend in compiler.libraries.installed():
        if backend.precision == "float32":
            engine = Engine(backend=backend, positions=programs.parts.operators)
            placements[str(backend)] = BackendPlacement(engines=(engine,), constants=programs.constants)
    entries = [replace(captured.program, placement=replace(each, trial=1)) for each in placements.values()]
    contest = Contest(torch.device("cpu"), memory_bytes=8 << 30, num_threads=num_threads, libraries=compiler.libraries)
    timings = dict(zip(placements, contest.times(entries, first=0), strict=True))
    return Row(
        network=NAME,
        num_threads=num_threads,
        date=datetime.now(UTC).isoformat(timespec="seconds"),
        load_average=os.getloadavg()[0],
        contest={name: lap(timing) for name, timing in timings.items() if not timing.fault},
        faults={name: timing.fault for name, timing in timings.items() if timing.fault},
        engines=[str(engine.backend) for engine in compiled.placement.engines],
        predicted_s=compiled.plan.predicted_s,
        op_level_s=compiled.plan.op_level_s,
        num_measured=len(compiler.costs),
    )
