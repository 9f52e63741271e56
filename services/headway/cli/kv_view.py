"""KV blocks for people."""

from collections.abc import Sequence

from rich import box
from rich.console import Group, JustifyMethod, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.kv import BlockUse, KvUsage, RequestUsage, SequenceBlocks

_COLUMNS: tuple[tuple[str, JustifyMethod], ...] = (
    ("worker", "left"),
    ("model", "left"),
    ("used", "right"),
    ("shared", "right"),
    ("pinned", "right"),
    ("cached", "right"),
    ("free", "right"),
    ("host used", "right"),
    ("cached", "right"),
    ("free", "right"),
    ("saved", "right"),
    ("hits", "right"),
    ("waste", "right"),
    ("recomputed", "right"),
    ("swapped", "right"),
    ("run", "right"),
    ("wait", "right"),
    ("on host", "right"),
)


def usage_view(usages: Sequence[KvUsage]) -> RenderableType:
    """One row for each worker: blocks by state, what sharing saves, hit rate, waste, preemptions, sequences."""
    table = Table(box=box.SIMPLE_HEAD, header_style="bold cyan", pad_edge=False, collapse_padding=True)
    for name, justify in _COLUMNS:
        table.add_column(name, justify=justify, no_wrap=True)
    for usage in usages:
        table.add_row(*_cells(usage))
    return table


def request_view(parts: Sequence[RequestUsage]) -> RenderableType:
    """For each worker and sequence its tokens and its block table."""
    return Group(*(line for part in parts for line in _part(part)))


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


def _percent(share: float | None) -> str:
    return "-" if share is None else f"{share:.1%}"


def _part(part: RequestUsage) -> list[RenderableType]:
    headline = f"{part.model} on {part.worker_id}, {part.block_size} tokens a block"
    return [Text(headline, style="bold"), *(line for sequence in part.sequences for line in _sequence(sequence))]


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
    return [text, table] if sequence.blocks else [text]


def _block(block: BlockUse) -> list[str]:
    name = f"host {block.block_id}" if block.is_on_host else str(block.block_id)
    return [name, str(block.num_tokens), str(block.num_references), ", ".join(block.shared_with)]
