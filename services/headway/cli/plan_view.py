"""A serving plan for people."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.core.plan import Assignment, ServingPlan
from headway.core.units import format_bytes, format_duration


def plan_view(plan: ServingPlan) -> RenderableType:
    """For each replica where it runs, its memory, its limits, and what to expect of it."""
    return Group(Text(f"plan {plan.plan_id}", style="bold"), *map(_replica, plan.assignments))


def _replica(assignment: Assignment) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan")
    table.add_row(Text(f"  {assignment.model}"), f"on {assignment.worker_id} ({assignment.group_id})")
    for name, text in (
        ("memory", _memory(assignment)),
        ("limits", _limits(assignment)),
        ("expected", _expected(assignment)),
    ):
        table.add_row(Text(f"    {name}"), text)
    return table


def _memory(assignment: Assignment) -> str:
    return (
        f"weights {format_bytes(assignment.weight_bytes)}, KV cache {format_bytes(assignment.kv_cache_bytes)} "
        f"({assignment.num_blocks} blocks of {assignment.block_size} tokens), "
        f"reserved {format_bytes(assignment.reserved_bytes)}"
    )


def _limits(assignment: Assignment) -> str:
    prefix_cache = "prefix cache" if assignment.enable_prefix_cache else "no prefix cache"
    return (
        f"{assignment.max_num_seqs} sequences, {assignment.max_num_batched_tokens} tokens a step, "
        f"sequences of {assignment.max_model_len} tokens at most, {prefix_cache}"
    )


def _expected(assignment: Assignment) -> str:
    prediction = assignment.prediction
    return (
        f"TTFT {format_duration(prediction.ttft_s)} when idle, TPOT {format_duration(prediction.tpot_s)} alone and "
        f"{format_duration(prediction.tpot_loaded_s)} in a full batch, "
        f"{prediction.output_tokens_per_s:.0f} tokens/s ({prediction.latency.origin})"
    )
