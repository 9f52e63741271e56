"""KV blocks for people."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from headway.cli.wide_table import WideTable
from headway.core.kv import BlockUse, KvUsage, RequestUsage, SequenceBlocks, ShardUsage, TokenRange
from headway.core.move import RequestMove
from headway.core.units import format_bytes

_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("worker", "left"),
    ("model", "left"),
    ("used", "right"),
    ("shared", "right"),
    ("pinned", "right"),
    ("cached", "right"),
    ("free", "right"),
    ("host used", "right"),
    ("host cached", "right"),
    ("host free", "right"),
    ("saved", "right"),
    ("hits", "right"),
    ("waste", "right"),
    ("recomputed", "right"),
    ("swapped", "right"),
    ("run", "right"),
    ("wait", "right"),
    ("on host", "right"),
)
_NUM_NAMES = 2  # columns that say whose the row is


def usage_view(usages: Sequence[KvUsage]) -> RenderableType:
    """Tables each worker: blocks by state, what sharing saves, hit rate, waste, preemptions, sequences.

    Below it, where the cache lies on several ranks, one for each shard.
    """
    rows: list[list[str]] = []
    for usage in usages:
        rows.append(_cells(usage))
        if len(usage.shards) > 1:
            rows += [_shard_cells(number, shard) for number, shard in enumerate(usage.shards)]
    return WideTable(_COLUMNS, rows, _NUM_NAMES)


def request_view(parts: Sequence[RequestUsage]) -> RenderableType:
    """Shows the tokens and the block table of each sequence, worker by worker."""
    return Group(*(line for part in parts for line in _part(part)))


def move_lines(moves: Sequence[RequestMove], *, worker_id: str) -> list[str]:
    """Says, a line each, which workers the request has left; or one line that it has left none."""
    return [_move_line(move, worker_id) for move in moves] or [f"It runs on {worker_id} already."]


def _move_line(move: RequestMove, worker_id: str) -> str:
    line = f"{move.worker_id} -> {worker_id}: {move.num_sequences} sequences, "
    if move.recompute_reason:
        return f"{line}their tokens are computed anew. {move.recompute_reason}"
    return f"{line}{move.num_blocks} blocks ({format_bytes(move.num_bytes)}) brought"


def _cells(usage: KvUsage) -> list[str]:
    if not usage.num_blocks:
        return [usage.worker_id, usage.model or "-", *["-"] * (len(_COLUMNS) - 2)]
    return [
        usage.worker_id,
        usage.model,
        f"{usage.num_used_blocks} ({usage.num_used_blocks / usage.num_blocks:.0%})",
        str(usage.num_shared_blocks),
        str(usage.num_pinned_blocks),
        str(usage.num_cached_blocks),
        str(usage.num_free_blocks),
        str(usage.num_used_host_blocks),
        str(usage.num_cached_host_blocks),
        str(usage.num_free_host_blocks),
        str(usage.num_saved_blocks),
        _percent(usage.hit_rate),
        _percent(usage.waste),
        str(usage.num_recompute_preemptions),
        str(usage.num_swap_preemptions),
        str(usage.num_running),
        str(usage.num_waiting),
        str(usage.num_swapped),
    ]


def _shard_cells(number: int, shard: ShardUsage) -> list[str]:
    """A shard's cells for `_COLUMNS`: its blocks on the device, and in the model's column its part of every
    sequence."""
    used = f"{shard.num_used_blocks} ({shard.num_used_blocks / shard.num_blocks:.0%})"
    name, share = _shard_name(number, shard.worker_ids), f"{shard.weight:.0%} of each"
    cells = [name, share, used, "", "", str(shard.num_cached_blocks), str(shard.num_free_blocks)]
    return cells + [""] * (len(_COLUMNS) - len(cells))


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _part(part: RequestUsage) -> list[RenderableType]:
    headline = f"{part.model} on {part.worker_id}, {part.block_size} tokens a block"
    lines = [line for sequence in part.sequences for line in _sequence(sequence)]
    return [Text(headline, style="bold"), *lines]


def _sequence(sequence: SequenceBlocks) -> list[RenderableType]:
    num_output_tokens = sequence.num_tokens - sequence.num_prompt_tokens
    text = Text(f"{sequence.label} ", style="cyan")
    text.append(
        f"{sequence.status}: {sequence.num_prompt_tokens} prompt and {num_output_tokens} output tokens, "
        f"{sequence.num_computed_tokens} computed, preempted {sequence.num_preemptions} times",
        style="default",
    )
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False, collapse_padding=True)
    for name in ("entry", "block", "tokens", "references"):
        table.add_column(name, justify="right", no_wrap=True)
    table.add_column("shared with")
    for index, block in enumerate(sequence.blocks):
        table.add_row(str(index), *_block(block))
    return [text, *_shards(sequence), table] if sequence.blocks else [text]


def _shards(sequence: SequenceBlocks) -> list[Text]:
    """Lists which shard has which computed tokens: "shard 0 on worker-0: 64 tokens, 0-31, 64-95"."""
    by_shard: dict[int, list[TokenRange]] = {}
    for span in sequence.ranges:
        by_shard.setdefault(span.shard, []).append(span)
    return [
        Text(f"{_shard_name(shard, spans[0].worker_ids)}: {_token_ranges(spans)}")
        for shard, spans in sorted(by_shard.items())
    ]


def _token_ranges(spans: Sequence[TokenRange]) -> str:
    num_tokens = sum(span.stop - span.start for span in spans)
    return ", ".join([f"{num_tokens} tokens", *(f"{span.start}-{span.stop - 1}" for span in spans)])


def _shard_name(number: int, worker_ids: Sequence[str]) -> str:
    return f"  shard {number} on {', '.join(worker_ids)}"


def _block(block: BlockUse) -> list[str]:
    name = f"host {block.block_id}" if block.is_on_host else str(block.block_id)
    return [name, str(block.num_tokens), str(block.num_references), ", ".join(block.shared_with)]
