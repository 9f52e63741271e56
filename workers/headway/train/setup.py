"""A run's directory: what its ranks read before the first step."""

import json
from dataclasses import dataclass
from pathlib import Path

import torch

from headway.core.codec import from_document
from headway.core.errors import NotFoundError
from headway.core.execution.execution import Execution
from headway.core.program import Program, Value
from headway.core.training_job import TrainingJob
from headway.core.training_run import RUN_FILE, TrainingRun


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Attributes:
    programs: the captured step by its number of examples.
    num_tokens, flops, thread_flops, gpu_flops: see `TrainingRun`.
    """

    directory: Path
    job: TrainingJob
    execution: Execution
    programs: dict[int, Program]
    num_tokens: int = 0
    flops: float = 0.0
    thread_flops: float = 0.0
    gpu_flops: float = 0.0

    def inputs(self, state: set[str]) -> dict[str, Value]:
        """Inputs of the step that are no parameters or buffers, by name."""
        program = next(iter(self.programs.values()))
        pairs = zip(program.names, program.inputs, strict=True)
        return {name: value for name, value in pairs if name not in state}

    @property
    def dtypes(self) -> dict[str, torch.dtype]:
        """Of the step's inputs, by name."""
        program = next(iter(self.programs.values()))
        return {name: getattr(torch, value.dtype) for name, value in zip(program.names, program.inputs, strict=True)}


def read_setup(directory: Path) -> Setup:
    """NotFoundError where there is no run; InvalidArgumentError names the field that is at fault."""
    path = directory / RUN_FILE
    if not path.is_file():
        raise NotFoundError(f"There is no training run in {directory}.", hint="`headway train list` lists runs.")
    run = from_document(TrainingRun, json.loads(path.read_text()))
    programs = {int(count): program for count, program in run.programs.items()}
    return Setup(
        directory=directory,
        job=run.job,
        execution=run.execution,
        programs=programs,
        num_tokens=run.num_tokens,
        flops=run.flops,
        thread_flops=run.thread_flops,
        gpu_flops=run.gpu_flops,
    )
