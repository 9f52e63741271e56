"""The ranks of a pipeline that run a schedule's CSV with torch's own runtime, unmodified; started by the test.

Ranks are forked, as importing torch takes longer than all of the rest."""

import json
import multiprocessing
import sys
from pathlib import Path

import torch
import torch.distributed as dist
from torch import nn
from torch.distributed.pipelining import PipelineStage
from torch.distributed.pipelining.schedules import _PipelineScheduleRuntime

WIDTH, EXAMPLES = 8, 2


def make_stages(count: int) -> list[nn.Module]:
    torch.manual_seed(0)
    return [nn.Sequential(nn.Linear(WIDTH, WIDTH), nn.Tanh()) for _ in range(count)]


def batch(num_micro_batches: int) -> tuple[torch.Tensor, torch.Tensor]:
    generator = torch.Generator().manual_seed(1)
    shape = (num_micro_batches * EXAMPLES, WIDTH)
    return torch.randn(shape, generator=generator), torch.randn(shape, generator=generator)


def expected_gradients(num_stages: int, num_micro_batches: int) -> list[list[torch.Tensor]]:
    stages = make_stages(num_stages)
    inputs, targets = batch(num_micro_batches)
    for x, y in zip(inputs.chunk(num_micro_batches), targets.chunk(num_micro_batches), strict=True):
        (nn.functional.mse_loss(nn.Sequential(*stages)(x), y) / num_micro_batches).backward()
    return [[parameter.grad for parameter in stage.parameters()] for stage in stages]  # type: ignore[misc]


def main(rank: int, world: int, stage_ranks: list[int], num_micro_batches: int, directory: Path) -> None:
    dist.init_process_group("gloo", init_method=f"file://{directory}/rendezvous", rank=rank, world_size=world)
    modules = make_stages(len(stage_ranks))
    mine = [stage for stage, owner in enumerate(stage_ranks) if owner == rank]
    stages = [PipelineStage(modules[i], i, len(modules), torch.device("cpu")) for i in mine]
    schedule = _PipelineScheduleRuntime(stages, num_micro_batches, loss_fn=nn.functional.mse_loss)
    schedule._load_csv(str(directory / "schedule.csv"))
    inputs, targets = batch(num_micro_batches)
    schedule.step(*((inputs,) if 0 in mine else ()), target=targets if len(modules) - 1 in mine else None)
    expected = expected_gradients(len(modules), num_micro_batches)
    worst = max(
        float((parameter.grad - wanted).abs().max())
        for i in mine
        for parameter, wanted in zip(modules[i].parameters(), expected[i], strict=True)
        if parameter.grad is not None
    )
    lacking = [i for i in mine for parameter in modules[i].parameters() if parameter.grad is None]
    (directory / f"rank{rank}.json").write_text(json.dumps({"worst": worst, "lacking": lacking}))
    dist.destroy_process_group()


if __name__ == "__main__":
    num_ranks, owners, count, folder = int(sys.argv[1]), json.loads(sys.argv[2]), int(sys.argv[3]), Path(sys.argv[4])
    fork = multiprocessing.get_context("fork")
    ranks = [fork.Process(target=main, args=(rank, num_ranks, owners, count, folder)) for rank in range(num_ranks)]
    for each in ranks:
        each.start()
    for each in ranks:
        each.join()
    sys.exit(max(abs(each.exitcode or 0) for each in ranks))
