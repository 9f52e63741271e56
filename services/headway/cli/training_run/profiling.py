"""Measures what a job's operators take, for the search of its plan. What was measured is kept."""

import hashlib
import json
import platform
from dataclasses import dataclass
from importlib.metadata import version
from pathlib import Path

from headway.cli.profile_measure import MeasureOptions, measure_model
from headway.cli.service_link import has_stack
from headway.client.stack import default_state_dir
from headway.core.codec import from_document, to_document
from headway.core.errors import (
    AlreadyExistsError,
    DeadlineExceededError,
    FailedPreconditionError,
    UnavailableError,
)
from headway.core.execution.mixed import in_bfloat16
from headway.core.graph import Graph
from headway.core.operator_seconds import OperatorSeconds, operator_seconds
from headway.core.precision import Precision
from headway.core.program import Program
from headway.core.training_job import ALWAYS, CPU, NEVER, TrainingJob
from headway.core.unit_programs import operator_programs

_DIRECTORY, _OWN = "operator-times", "profiler"
_WHOLE_SHARE = 1.0  # of a worker that serves nothing
_LONGEST_S = 10.0


@dataclass(frozen=True, slots=True, kw_only=True)
class ProfilingOptions:
    """Attributes:
    precision: in which the step is measured.
    device: that it is measured on.
    num_threads: of a rank.
    deadline_s: within which all is measured.
    """

    precision: Precision
    device: str = CPU
    num_threads: int
    deadline_s: float
    state_dir: Path | None


async def figures_of(
    job: TrainingJob, graph: Graph, program: Program, options: ProfilingOptions
) -> tuple[OperatorSeconds | None, str]:
    """What the operators of a job's step take, and in words where that is from; None where the catalogue's figures
    count. Where the job says always, raises what `profile_operators` raises."""
    if job.profile == NEVER:
        return None, "the catalogue's figures, as the job says profile: never"
    try:
        measured = await profile_operators(graph, program, options)
    except (AlreadyExistsError, DeadlineExceededError, FailedPreconditionError, UnavailableError) as error:
        if job.profile == ALWAYS:
            raise
        return None, f"the catalogue's figures, as operators could not be measured: {error.message}"
    return measured, f"what its operators were measured to take on {measured.hardware}"


async def profile_operators(graph: Graph, program: Program, options: ProfilingOptions) -> OperatorSeconds:
    """Measures a training step's operators as `headway profile model --train` does, each distinct one once, on a worker
    of this command's own with as many threads as a rank has: workers of a running stack have others.

    Raises what `measure_model` raises.
    """
    base = options.state_dir or default_state_dir()
    if options.precision is Precision.BFLOAT16:
        program = in_bfloat16(program)
    kept = base / _DIRECTORY / f"{_name(program, options)}.json"
    if kept.exists():
        return from_document(OperatorSeconds, json.loads(kept.read_text()))
    profile = await measure_model(
        graph,
        program,
        MeasureOptions(
            share=_WHOLE_SHARE,
            longest_s=_LONGEST_S,
            deadline_s=options.deadline_s,
            device=options.device,
            num_threads=options.num_threads,
            state_dir=base / _OWN if has_stack(base) else base,
        ),
    )
    measured = operator_seconds(profile, operator_programs(graph, program))
    kept.parent.mkdir(parents=True, exist_ok=True)
    partial = kept.with_suffix(".partial")
    partial.write_text(json.dumps(to_document(measured)))
    partial.rename(kept)
    return measured


def _name(program: Program, options: ProfilingOptions) -> str:
    """Of the program's times: on this machine, with these versions."""
    used = f"{options.num_threads}" if options.device == CPU else options.device
    facts = (version("headway"), version("torch"), platform.node(), used, program.content_hash)
    return hashlib.sha256("\0".join((*facts, *program.positions())).encode()).hexdigest()[:16]
