"""The ranks of a group as threads of one process: networks of which each has a part, run in step."""

import threading
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import torch
from torch import Tensor

from headway.checkpoint.model_directory import Checkpoint
from headway.core.model import ModelSpec
from headway.core.parallel_config import ParallelConfig
from headway.core.shard import shard_of
from headway.models.attention import AttentionContext, LayerCache
from headway.models.layout import Alone, Layout
from headway.models.loader import Progress, load_model
from headway.models.model import DTYPES, Model

R = TypeVar("R")

BLOCK_SIZE = 16
_TIMEOUT_S = 60.0
_CPU = torch.device("cpu")


class Meeting:
    """Where the ranks put down what they bring, and take what all have brought."""

    def __init__(self, size: int) -> None:
        self._barrier = threading.Barrier(size, timeout=_TIMEOUT_S)
        self._brought: list[Tensor] = [torch.empty(0)] * size

    def exchange(self, x: Tensor, *, rank: int) -> list[Tensor]:
        self._brought[rank] = x.clone()
        self._barrier.wait()
        brought = list(self._brought)
        self._barrier.wait()
        return brought

    def end(self) -> None:
        """Lets all exchanges fail."""
        self._barrier.abort()


class ThreadAxis:
    """A `TensorAxis`. `calls` holds (operation, site, shape of what this rank gave)."""

    def __init__(self, meeting: Meeting, *, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self.calls: list[tuple[str, str, tuple[int, ...]]] = []
        self._meeting = meeting

    def all_reduce(self, x: Tensor, *, site: str) -> Tensor:
        self.calls.append(("all_reduce", site, tuple(x.shape)))
        return x.copy_(torch.stack(self._meeting.exchange(x, rank=self.rank)).sum(dim=0))

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:
        self.calls.append(("gather", site, tuple(x.shape)))
        gathered = self._meeting.exchange(x, rank=self.rank)
        return gathered if self.rank == 0 else None

    def leave(self) -> None:
        self._meeting.end()


class StageAxis:
    """A `HeadAxis` of stages that are computed one after the other, the first rank last."""

    def __init__(self, brought: dict[int, Tensor], *, rank: int, size: int) -> None:
        self.rank = rank
        self.size = size
        self._brought = brought

    def gather(self, x: Tensor, *, site: str) -> list[Tensor] | None:
        self._brought[self.rank] = x
        return None if self.rank > 0 else [self._brought.pop(rank) for rank in range(self.size)]

    def all_gather(self, x: Tensor, *, sizes: Sequence[int], site: str) -> list[Tensor]:
        raise AssertionError("the stages are in one place")


def layouts(spec: ModelSpec, *, tp: int, pp: int = 1) -> list[Layout]:
    """One a rank."""
    parallel = ParallelConfig(tp=tp, pp=pp)
    meetings = [Meeting(tp) for _ in range(pp)]
    layouts = []
    for rank in range(parallel.num_ranks):
        place = parallel.place(rank)
        axis = ThreadAxis(meetings[place.stage], rank=place.tensor, size=tp)
        part, num_parts = parallel.head_part(rank)
        head = axis if pp == 1 else StageAxis({}, rank=part, size=num_parts)
        layouts.append(Layout(shard_of(spec, parallel, rank=rank), axis, head))
    return layouts


def stages_of(spec: ModelSpec, parallel: ParallelConfig) -> list[Layout]:
    """Those of a pipeline in one process, the first stage first."""
    brought: dict[int, Tensor] = {}
    return [
        Layout(shard_of(spec, parallel, rank=rank), Alone(), StageAxis(brought, rank=rank, size=parallel.pp))
        for rank in reversed(range(parallel.pp))
    ]


def run_ranks(layouts: Sequence[Layout], function: Callable[[Layout], R]) -> list[R]:
    """Calls the function for every rank at once. Where one fails, all do."""

    def run(layout: Layout) -> R:
        torch.set_num_threads(1)
        try:
            with torch.inference_mode():
                return function(layout)
        except Exception:
            assert isinstance(layout.tensor, ThreadAxis)
            layout.tensor.leave()
            raise

    with ThreadPoolExecutor(len(layouts)) as threads:
        return [future.result() for future in [threads.submit(run, layout) for layout in layouts]]


def compute_logits(
    checkpoint: Checkpoint, prompts: list[list[int]], *, layout: Layout, num_steps: int = 3
) -> list[Tensor] | None:
    """Each prompt's logits [T, vocab_size], at the first rank: the last `num_steps` tokens come one by one."""
    return compute_stages(checkpoint, prompts, layouts=[layout], num_steps=num_steps)


def compute_stages(
    checkpoint: Checkpoint, prompts: list[list[int]], *, layouts: Sequence[Layout], num_steps: int = 3
) -> list[Tensor] | None:
    """The same of a network in stages, all of which are computed here, one after the other."""
    stages = []
    for layout in layouts:
        model = load_model(checkpoint, layout=layout, device=_CPU)
        stages.append((model, _make_cache(checkpoint.spec, layout, num_blocks=len(prompts) * _num_blocks(prompts))))
    found: list[list[Tensor]] = [[] for _ in prompts]
    firsts = [0] * len(prompts)
    for step in range(num_steps, -1, -1):
        lasts = [len(prompt) - step for prompt in prompts]
        logits = _step(stages, prompts, firsts, lasts)
        if logits is not None:
            counts = [last - first for first, last in zip(firsts, lasts, strict=True)]
            for rows, part in zip(found, logits.split(counts), strict=True):
                rows.append(part)
        firsts = lasts
    return [torch.cat(rows) for rows in found] if layouts[-1].tensor.rank == 0 else None


def read_progress(checkpoint: Checkpoint, *, layout: Layout) -> tuple[int, int]:
    """(bytes read, bytes in all) as they were told last."""
    told = (0, 0)

    def note(done: int, total: int) -> None:
        nonlocal told
        told = (done, total)

    progress: Progress = note
    load_model(checkpoint, layout=layout, device=_CPU, progress=progress)
    return told


def _step(
    stages: list[tuple[Model, list[LayerCache]]], prompts: list[list[int]], firsts: list[int], lasts: list[int]
) -> Tensor | None:
    """Logits of the tokens from `firsts` to `lasts` of the prompts, one after the other."""
    spans = list(zip(prompts, firsts, lasts, strict=True))
    positions = torch.cat([torch.arange(first, last) for _, first, last in spans])
    counts = torch.tensor([last - first for _, first, last in spans])
    tables = torch.arange(len(prompts) * _num_blocks(prompts), dtype=torch.int32).view(len(prompts), -1)
    own_first_slots = torch.repeat_interleave(tables[:, 0].long() * BLOCK_SIZE, counts)
    context = AttentionContext(
        positions=positions,
        own_positions=positions,
        slot_mapping=own_first_slots + positions,
        block_tables=tables,
        seq_lens=torch.tensor(lasts, dtype=torch.int32),
        query_start=torch.cat((torch.zeros(1), counts.cumsum(0))).int(),
    )
    token_ids = torch.tensor([token for prompt, first, last in spans for token in prompt[first:last]])
    rows = torch.arange(len(token_ids))
    hidden: Tensor | None = None
    for model, cache in stages:
        hidden = model.forward(token_ids.long(), context, cache, entering=hidden, rows=rows)
    assert hidden is not None
    logits = [model.compute_logits(hidden) for model, _ in stages][-1]
    largest = [model.largest_logits(hidden) for model, _ in stages][-1]
    best = None if largest is None else largest[1]
    if logits is not None:
        assert best is not None
        assert best.tolist() == logits.argmax(dim=1).tolist(), "best tokens are those of the largest logits"
    return logits


def _num_blocks(prompts: list[list[int]]) -> int:
    """Of one sequence."""
    return -(-max(map(len, prompts)) // BLOCK_SIZE)


def _make_cache(spec: ModelSpec, layout: Layout, *, num_blocks: int) -> list[LayerCache]:
    shape = (num_blocks, len(layout.shard.kv_heads), BLOCK_SIZE, spec.head_dim)
    dtype = DTYPES[spec.dtype]
    # Keys lie transposed within a block.
    transposed = (*shape[:2], spec.head_dim, BLOCK_SIZE)
    return [(torch.empty(transposed, dtype=dtype).mT, torch.empty(shape, dtype=dtype)) for _ in layout.shard.layers]
