"""The grid of steps to measure: a few prefills, decodes and mixtures over short and long contexts, as the worker
allows.
"""

from collections.abc import Iterable
from dataclasses import dataclass

_MAX_CONTEXT_TOKENS = 2048
_MAX_DECODES = 64
_MAX_PREFILL_TOKENS = 1024


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerLimits:
    """The limits of one step of a worker's engine."""

    max_num_seqs: int
    max_num_batched_tokens: int
    max_model_len: int
    num_blocks: int
    block_size: int


@dataclass(frozen=True, slots=True)
class Point:
    """One step to measure; the fields are those of `StepMeasurement`."""

    prefill_tokens: int
    num_decodes: int
    context_tokens: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Grid:
    """Points that the fit sees, and others that tell how good it is; each at most once."""

    fitted: tuple[Point, ...]
    held_out: tuple[Point, ...]

    @property
    def points(self) -> tuple[Point, ...]:
        return self.fitted + self.held_out


def choose_grid(limits: WorkerLimits) -> Grid:
    """About 18 points that fit the worker, cheap ones first in each part."""
    if limits.num_blocks == 0:
        return _encoder_grid(limits)
    long_context = min(_MAX_CONTEXT_TOKENS, limits.max_model_len)
    mid_context, short_context = max(1, long_context // 4), max(1, long_context // 32)
    chunk = min(_MAX_PREFILL_TOKENS, limits.max_num_batched_tokens, limits.max_model_len)
    batch = min(_MAX_DECODES, limits.max_num_seqs)
    fitted = (
        Point(0, 1, short_context),
        Point(0, 1, long_context),
        Point(0, batch // 8, mid_context),
        Point(0, batch // 2, short_context),
        Point(0, batch // 2, long_context),
        Point(0, batch, short_context),
        Point(0, batch, mid_context),
        Point(chunk // 16, 0, 0),
        Point(chunk // 4, 0, 0),
        Point(chunk // 4, 0, long_context),
        Point(chunk, 0, 0),
        Point(chunk, 0, mid_context),
        Point(chunk // 2, batch // 4, mid_context),
    )
    held_out = (
        Point(0, 2, mid_context),
        Point(0, batch // 4, mid_context),
        Point(chunk // 8, 0, mid_context),
        Point(chunk // 2, 0, 0),
        Point(chunk // 4, batch // 2, short_context),
    )
    shrunk_fitted = _distinct(_shrink(point, limits) for point in fitted)
    shrunk_held_out = _distinct(_shrink(point, limits) for point in held_out)
    return Grid(fitted=shrunk_fitted, held_out=tuple(p for p in shrunk_held_out if p not in shrunk_fitted))


def _encoder_grid(limits: WorkerLimits) -> Grid:
    """Single sequences of many lengths: a model without blocks does not decode, and has no context."""
    longest = min(_MAX_CONTEXT_TOKENS, limits.max_model_len)
    fitted = _distinct(Point(longest // divisor, 0, 0) for divisor in (32, 16, 8, 4, 2, 1) if longest // divisor)
    held_out = _distinct(Point(3 * longest // divisor, 0, 0) for divisor in (16, 8, 4) if 3 * longest // divisor)
    return Grid(fitted=fitted, held_out=tuple(point for point in held_out if point not in fitted))


def fits(point: Point, limits: WorkerLimits) -> bool:
    """Whether one step can hold the point's sequences; a model without blocks takes one prompt."""
    if limits.num_blocks == 0:
        return point.num_decodes == point.context_tokens == 0 < point.prefill_tokens <= limits.max_model_len
    prompt_len, decode_len = point.context_tokens + point.prefill_tokens, point.context_tokens + 1
    num_prompts = int(point.prefill_tokens > 0)
    longest = max(prompt_len * num_prompts, decode_len * int(point.num_decodes > 0))
    num_blocks = num_prompts * -(-prompt_len // limits.block_size)
    num_blocks += point.num_decodes * -(-decode_len // limits.block_size)
    return (
        longest <= limits.max_model_len
        and num_blocks <= limits.num_blocks
        and num_prompts + point.num_decodes <= limits.max_num_seqs
        and point.prefill_tokens + point.num_decodes <= limits.max_num_batched_tokens
    )


def _shrink(point: Point, limits: WorkerLimits) -> Point | None:
    """Halves the context, then the decodes and the prefill, until the point fits; None where nothing is left."""
    while not fits(point, limits):
        if point.context_tokens > limits.block_size:
            point = Point(point.prefill_tokens, point.num_decodes, point.context_tokens // 2)
        elif point.num_decodes + point.prefill_tokens > 1:
            point = Point(point.prefill_tokens // 2, point.num_decodes // 2, point.context_tokens)
        elif point.context_tokens > 0:
            point = Point(point.prefill_tokens, point.num_decodes, point.context_tokens // 2)
        else:
            return None
    return point if point.prefill_tokens or point.num_decodes else None


def _distinct(points: Iterable[Point | None]) -> tuple[Point, ...]:
    return tuple(dict.fromkeys(point for point in points if point is not None))
