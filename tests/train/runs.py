"""Makes runs of the models, and trains them in one process to compare with."""

import copy
import json
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, replace
from pathlib import Path

import torch
import torch.distributed as dist
from safetensors.torch import load_file, save_file
from torch import Tensor, nn

from headway.core.codec import to_document
from headway.core.execution.compiler import compile_execution
from headway.core.execution.execution import Execution, StageSpec
from headway.core.execution.orders import Order, stage_orders
from headway.core.graph import Graph
from headway.core.program import Program, Value
from headway.core.training_job import DataSettings, OptimizerSettings, TrainingJob
from headway.core.training_run import INITIAL_FILE, RUN_FILE, TrainingRun
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace
from headway.train.data import TensorData
from headway.train.device import CPU
from headway.train.setup import read_setup
from headway.train.trainer import Trainer
from tests.train.models import inputs

NUM_STEPS, BATCH = 20, 8
StageOf = Callable[[str], int]


@dataclass(frozen=True, kw_only=True)
class Captured:
    """A model's step, captured with several numbers of examples."""

    model: nn.Module
    graph: Graph
    programs: dict[int, Program]


def captured(model: nn.Module, counts: Sequence[int], dtype: torch.dtype = torch.float64) -> Captured:
    torch.manual_seed(0)
    model = model.to(dtype)
    graph, programs = None, {}
    for count in counts:
        given = tuple(inputs(model, count).values())
        traced = trace(copy.deepcopy(model), given, train=True, report=lambda _: None)
        graph = build_graph(traced, name="model", is_training=True, batch=count)
        programs[count] = build_program(traced)
    assert graph is not None
    return Captured(model=model, graph=graph, programs=programs)


def stages_of(
    graph: Graph, stage_of: StageOf, ranks: Sequence[tuple[int, ...]], sizes: Sequence[int], *, recomputes: bool = False
) -> list[StageSpec]:
    """Cuts a graph by its modules; what is in none is where the last of what it reads is made, and a backward operator
    where its forward operator is."""
    place: dict[str, int] = {}
    maker = {name: op.name for op in graph.operators for name in op.outputs}
    for op in graph.operators:
        if not op.is_backward:
            before = max((place[maker[name]] for name in op.inputs if name in maker), default=0)
            place[op.name] = max(before, stage_of(op.module) if op.module else before)
    return [
        StageSpec(
            forward=tuple(op.name for op in graph.operators if place.get(op.name) == number),
            backward=tuple(op.name for op in graph.operators if op.is_backward and place[op.forward] == number),
            ranks=own,
            micro_batch=size,
            recomputes=recomputes,
        )
        for number, (own, size) in enumerate(zip(ranks, sizes, strict=True))
    ]


def execution_of(
    step: Captured,
    stages: Sequence[StageSpec],
    *,
    successors: Sequence[tuple[int, ...]],
    method: str = "1f1b",
    splits: bool = False,
    orders: Sequence[Order] | None = None,
) -> Execution:
    made = orders or stage_orders(method, stages, successors, batch=BATCH, splits=splits)
    programs = {stage.examples: step.programs[stage.examples] for stage in stages}
    return compile_execution(programs, stages, made, batch=BATCH, splits=splits)


def write_run(
    directory: Path, step: Captured, execution: Execution, *, optimizer: OptimizerSettings, padded: bool = False,
    **changes: object,
) -> Path:  # fmt: skip
    """A run over 24 examples, three iterations' worth."""
    directory.mkdir(parents=True)
    save_file(inputs(step.model, 3 * BATCH, padded=padded), directory / "data.safetensors")
    save_file({name: t.detach().clone() for name, t in step.model.named_parameters()}, directory / INITIAL_FILE)
    job = TrainingJob(
        model="test",
        data=DataSettings(tensors=str(directory / "data.safetensors")),
        batch=BATCH,
        steps=NUM_STEPS,
        workers=len(execution.ranks),
        optimizer=optimizer,
        seed=3,
    )
    programs = {str(stage.examples): step.programs[stage.examples] for stage in execution.stages}
    run = TrainingRun(job=replace(job, **changes), execution=execution, programs=programs)  # type: ignore[arg-type]
    (directory / RUN_FILE).write_text(json.dumps(to_document(run)))
    return directory


def train_in_threads(directory: Path, device: torch.device = CPU) -> list[float]:
    """The losses of a run that is trained by a thread a rank, with messages between them as between processes."""
    setup, store = read_setup(directory), dist.HashStore()

    def losses(rank: int) -> list[float]:
        trainer = Trainer(setup, rank, store=store, should_stop=lambda: False, device=device)
        return [report.loss for report in trainer.run()]

    ranks = range(len(setup.execution.ranks))
    with ThreadPoolExecutor(len(ranks)) as pool:
        first, *_ = pool.map(losses, ranks)
    return first


def train_alone(
    model: nn.Module, data: Callable[[int], dict[str, Tensor]], settings: OptimizerSettings, num_steps: int = NUM_STEPS
) -> tuple[list[float], dict[str, Tensor]]:
    """Losses and weights of a plain loop of torch's autograd over whole batches."""
    model = copy.deepcopy(model)
    if settings.name == "adamw":
        optimizer: torch.optim.Optimizer = torch.optim.AdamW(
            model.parameters(),
            lr=settings.rate,
            betas=(settings.beta1, settings.beta2),
            eps=settings.epsilon,
            weight_decay=settings.weight_decay,
        )
    else:
        optimizer = torch.optim.SGD(model.parameters(), lr=settings.rate)
    losses = []
    for step in range(num_steps):
        optimizer.zero_grad()
        loss = model(**data(step))
        loss.backward()
        if settings.clip is not None:
            nn.utils.clip_grad_norm_(model.parameters(), settings.clip)
        optimizer.step()
        losses.append(loss.item())
    return losses, {name: parameter.detach() for name, parameter in model.named_parameters()}


def difference(found: dict[str, Tensor], wanted: dict[str, Tensor]) -> float:
    """The largest, relative to each tensor's norm."""
    assert found.keys() == wanted.keys()
    return max(float((found[name] - wanted[name]).norm() / wanted[name].norm()) for name in wanted)


def data_of(directory: Path) -> Callable[[int], dict[str, Tensor]]:
    """What each step of a run sees."""
    setup = read_setup(directory)
    tensors = load_file(directory / "data.safetensors")
    wanted = {
        name: Value(shape=tuple(t.shape), stride=t.stride(), dtype=str(t.dtype).removeprefix("torch."))
        for name, t in tensors.items()
    }
    return TensorData(tensors, wanted, batch=BATCH, seed=setup.job.seed).batch
