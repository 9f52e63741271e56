"""The parts of a step, and which functions belong to each."""

from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from unittest.mock import patch

from benchmarks.steps.stopwatch import Stopwatch
from headway import kernels
from headway.engine.engine import Engine
from headway.kernels import Recording
from headway.models.linear import Linear
from headway.models.llama import Llama
from headway.models.row_linear import RowLinear
from headway.runner.model_runner import ModelRunner
from headway.runner.sampler import Sampler
from headway.runner.sampler_output import SamplerOutput


class Part(StrEnum):
    """A part of a step."""

    SCHEDULER = "scheduler and output processor"
    PREPARATION = "batch preparation"
    ATTENTION = "attention"
    MATMULS = "matrix products"
    MODEL = "the model's other arithmetic"
    SAMPLING = "sampling"
    PUBLISHING = "publishing, detokenisation, sockets"


NOBODY = "measuring"
"""What the stopwatch itself takes; no part of a step."""

MODEL_PARTS = (Part.ATTENTION, Part.MATMULS, Part.MODEL)

# (owner, attribute, part). A function's time less that of the functions below it that are listed too.
_FUNCTIONS: tuple[tuple[object, str, Part], ...] = (
    (Engine, "step", Part.SCHEDULER),
    (ModelRunner, "start", Part.PREPARATION),
    (ModelRunner, "finish", Part.PREPARATION),
    (Llama, "forward", Part.MODEL),
    (Llama, "compute_logits", Part.MODEL),
    (Llama, "largest_logits", Part.MODEL),
    (Linear, "__call__", Part.MATMULS),
    (RowLinear, "__call__", Part.MATMULS),
    (Linear, "largest", Part.MATMULS),
    (kernels, "paged_attention", Part.ATTENTION),
    (kernels, "rotate_and_cache", Part.ATTENTION),
    (Sampler, "start", Part.SAMPLING),
    (SamplerOutput, "finish", Part.SAMPLING),
)


_KERNELS = {
    "headway_linear": Part.MATMULS,
    "headway_find_largest": Part.MATMULS,
    "headway_paged_attention": Part.ATTENTION,
    "headway_rotate_and_cache": Part.ATTENTION,
}
"""Of those that are replayed; the others are the model's other arithmetic."""


@contextmanager
def instrumented(stopwatch: Stopwatch) -> Iterator[None]:
    """Wrap the functions while the context lasts."""
    with ExitStack() as stack:
        for owner, attribute, part in _FUNCTIONS:
            wrapped = stopwatch.timed(part, getattr(owner, attribute))
            stack.enter_context(patch.object(owner, attribute, wrapped))
        stack.enter_context(patch.object(Recording, "run", _timed_run(stopwatch)))
        yield


def _timed_run(stopwatch: Stopwatch) -> Callable[..., None]:
    """`Recording.run`, whose kernels count for their parts; to find out what they took counts for none."""
    replay, take_times = Recording.run, stopwatch.timed(NOBODY, Recording.take_times)

    def run(recording: Recording, num_parts: int = -1) -> None:
        recording.is_timed = True
        replay(recording, num_parts)
        for kernel, elapsed_ns in take_times(recording).items():
            stopwatch.hand_over(_KERNELS.get(kernel, Part.MODEL), elapsed_ns / 1e9)

    return run
