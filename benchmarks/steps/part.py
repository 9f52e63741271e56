"""The parts of a step, and which functions belong to each."""

from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from enum import StrEnum
from unittest.mock import patch

from benchmarks.steps.stopwatch import Stopwatch
from headway import kernels
from headway.engine.engine import Engine
from headway.models.linear import Linear
from headway.models.llama import Llama
from headway.models.row_linear import RowLinear
from headway.runner.drawing import Drawing
from headway.runner.model_runner import ModelRunner
from headway.runner.sampler import Sampler


class Part(StrEnum):
    """What a step does."""

    SCHEDULER = "scheduler and books"
    PREPARATION = "batch preparation"
    ATTENTION = "attention"
    MATMULS = "matrix products"
    MODEL = "the model's other arithmetic"
    SAMPLING = "sampling"
    PUBLISHING = "publishing, detokenisation, sockets"


MODEL_PARTS = (Part.ATTENTION, Part.MATMULS, Part.MODEL)

# (owner, attribute, part). A function's time less that of the functions below it that are listed too.
_FUNCTIONS: tuple[tuple[object, str, Part], ...] = (
    (Engine, "step", Part.SCHEDULER),
    (ModelRunner, "start", Part.PREPARATION),
    (ModelRunner, "finish", Part.PREPARATION),
    (Llama, "forward", Part.MODEL),
    (Llama, "compute_logits", Part.MODEL),
    (Llama, "best_tokens", Part.MODEL),
    (Linear, "__call__", Part.MATMULS),
    (RowLinear, "__call__", Part.MATMULS),
    (Linear, "largest", Part.MATMULS),
    (kernels, "paged_attention", Part.ATTENTION),
    (kernels, "rotate_and_cache", Part.ATTENTION),
    (Sampler, "start", Part.SAMPLING),
    (Drawing, "finish", Part.SAMPLING),
)


@contextmanager
def instrumented(stopwatch: Stopwatch) -> Iterator[None]:
    """Wrap the functions while the context lasts."""
    with ExitStack() as stack:
        for owner, attribute, part in _FUNCTIONS:
            wrapped = stopwatch.timed(part, getattr(owner, attribute))
            stack.enter_context(patch.object(owner, attribute, wrapped))
        yield
