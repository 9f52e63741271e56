"""Shows a serving plan."""

from rich.console import Group, RenderableType
from rich.table import Table
from rich.text import Text

from headway.cli.rank_text import rank_text
from headway.core.engine_kind import EngineKind
from headway.core.plan.serving import Assignment, ModelDeployment, RankShare, ServingPlan
from headway.core.units import format_bytes, format_duration


def plan_view(plan: ServingPlan) -> RenderableType:
    """Shows each replica: where it runs, its memory, its limits, and its predictions."""
    title = f"plan {plan.plan_id}" + (f" on emulated {plan.emulated_devices}" if plan.is_emulated else "")
    replicas = (_replica(assignment, plan.model(assignment.model)) for assignment in plan.assignments)
    return Group(Text(title, style="bold"), *replicas)


def _replica(assignment: Assignment, model: ModelDeployment | None) -> Table:
    table = Table.grid(padding=(0, 2))
    table.add_column(style="cyan")
    table.add_row(Text(f"  {assignment.model}"), _place(assignment))
    if model is not None and model.engine is not EngineKind.HEADWAY:
        table.add_row(Text("    engine"), f"{model.engine} {model.engine_args}".rstrip())
    if model is not None and model.backend:
        table.add_row(Text("    backend"), model.backend)
    for rank, share in enumerate(assignment.shares):
        owner = f" of {share.worker_id}" if assignment.has_mates else f" of device {rank}" if assignment.ranks else ""
        part = f"{text}: " if (text := rank_text(assignment, rank)) else ""
        table.add_row(Text(f"    memory{owner}"), part + _memory(assignment, share))
    for name, text in (("limits", _limits(assignment)), ("expected", _expected(assignment))):
        table.add_row(Text(f"    {name}"), text)
    return table


def _place(assignment: Assignment) -> str:
    if not assignment.has_mates:
        role = f", {assignment.role} only" if assignment.role else ""
        split = f", {assignment.parallel} inside" if assignment.ranks else ""
        return f"on {assignment.worker_id} ({assignment.group_id}){split}{role}"
    return f"on {assignment.group_id}, {assignment.parallel}: {', '.join(assignment.worker_ids)}; the first leads"


def _memory(assignment: Assignment, share: Assignment | RankShare) -> str:
    """How one worker's memory is split, as text."""
    if not assignment.num_blocks:
        return f"weights {format_bytes(share.weight_bytes)}, reserved {format_bytes(share.reserved_bytes)}"
    host = f", host cache {format_bytes(share.host_cache_bytes)}" if share.host_cache_bytes else ""
    return (
        f"weights {format_bytes(share.weight_bytes)}, KV cache {format_bytes(share.kv_cache_bytes)} "
        f"({_blocks(assignment)} of {assignment.block_size} tokens), "
        f"reserved {format_bytes(share.reserved_bytes)}{host}"
    )


def _blocks(assignment: Assignment) -> str:
    """Number of KV blocks of one cache shard, and where there are several shards, of all."""
    if (num_shards := assignment.parallel.cp) == 1:
        return f"{assignment.num_blocks} blocks"
    return f"{assignment.num_blocks // num_shards} of {assignment.num_blocks} blocks"


def _limits(assignment: Assignment) -> str:
    if not assignment.num_blocks:
        return (
            f"{assignment.max_num_seqs} sequences, {assignment.max_num_batched_tokens} tokens a step, "
            f"sequences of {assignment.max_model_len} tokens at most"
        )
    prefix_cache = "prefix cache" if assignment.enable_prefix_cache else "no prefix cache"
    prefill = assignment.max_num_prefill_tokens
    chunk = f" ({prefill} of prompts)" if prefill is not None else ""
    drafts = f", {assignment.num_draft_tokens} draft tokens" if assignment.num_draft_tokens else ""
    return (
        f"{assignment.max_num_seqs} sequences, {assignment.max_num_batched_tokens} tokens a step{chunk}, "
        f"sequences of {assignment.max_model_len} tokens at most, {prefix_cache}, "
        f"preemption {assignment.preemption}{drafts}"
    )


def _expected(assignment: Assignment) -> str:
    prediction = assignment.prediction
    if not prediction.output_tokens_per_s:
        return (
            f"an answer after {format_duration(prediction.ttft_s)} when idle, "
            f"{prediction.input_tokens_per_s:.0f} input tokens/s ({prediction.latency.origin})"
        )
    return (
        f"TTFT {format_duration(prediction.ttft_s)} when idle, TPOT {format_duration(prediction.tpot_s)} alone and "
        f"{format_duration(prediction.tpot_loaded_s)} in a full batch, "
        f"{prediction.output_tokens_per_s:.0f} tokens/s ({prediction.latency.origin})"
    )
