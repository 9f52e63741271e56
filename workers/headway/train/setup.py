"""A run's directory: what its ranks read before the first step."""

import json
from dataclasses import dataclass
from pathlib import Path

from headway.core.codec import from_document, to_document
from headway.core.execution.execution import Execution
from headway.core.program import Program, Value
from headway.core.training_job import TrainingJob

JOB, EXECUTION, PROGRAMS, INITIAL, CHECKPOINTS = (
    "job.json",
    "execution.json",
    "programs.json",
    "initial.safetensors",
    "checkpoints",
)


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Attributes:
    programs: the captured step by its number of examples.
    """

    directory: Path
    job: TrainingJob
    execution: Execution
    programs: dict[int, Program]

    def inputs(self, state: "set[str]") -> dict[str, Value]:
        """Inputs of the step that are no parameters or buffers, by name."""
        program = next(iter(self.programs.values()))
        pairs = zip(program.names, program.inputs, strict=True)
        return {name: value for name, value in pairs if name not in state}

    def write(self) -> None:
        self.directory.mkdir(parents=True, exist_ok=True)
        programs = {str(count): to_document(program) for count, program in self.programs.items()}
        documents = ((JOB, to_document(self.job)), (EXECUTION, to_document(self.execution)), (PROGRAMS, programs))
        for name, document in documents:
            (self.directory / name).write_text(json.dumps(document))


def read_setup(directory: Path) -> Setup:
    """InvalidArgumentError names the field that is at fault."""
    documents = {name: json.loads((directory / name).read_text()) for name in (JOB, EXECUTION, PROGRAMS)}
    return Setup(
        directory=directory,
        job=from_document(TrainingJob, documents[JOB]),
        execution=from_document(Execution, documents[EXECUTION]),
        programs={int(count): from_document(Program, each) for count, each in documents[PROGRAMS].items()},
    )
