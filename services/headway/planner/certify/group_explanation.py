"""Explains what the workers of a group share, and what each of them has."""

from collections.abc import Iterator

from headway.core.catalogue.figure import Provenance
from headway.core.links import LinkFigure
from headway.core.model import ModelSpec
from headway.core.plan.serving import Assignment
from headway.core.units import format_bytes, format_duration
from headway.planner.certify.memory import part_of


def explain_group(assignment: Assignment, spec: ModelSpec) -> Iterator[str]:
    """Explains a group from its axes to its ranks; says nothing of a lone worker with one device."""
    if not assignment.ranks:
        return
    parallel = assignment.parallel
    if assignment.has_mates:
        yield (
            f"{assignment.group_id} is {', '.join(assignment.worker_ids)} with {parallel}. {assignment.worker_id} "
            "leads: requests go to it, and it samples."
        )
    else:
        yield f"{assignment.worker_id} has {parallel.num_ranks} devices, over which its engine splits each layer."
    if part_of(assignment, spec, rank=0).parts > 1:
        yield _explain_parts(assignment, spec)
    if parallel.pp > 1:
        yield _explain_stages(assignment)
    if parallel.cp > 1:
        yield _explain_shards(assignment)
    if assignment.links:
        yield _explain_links(assignment)
    for rank, share in enumerate(assignment.ranks):
        owner = share.worker_id if assignment.has_mates else f"Device {rank} of {share.worker_id}"
        yield f"{owner} has {_holding(assignment, spec, rank)}."


def _explain_links(assignment: Assignment) -> str:
    figures = "; ".join(
        f"{link.operation} among {link.num_ranks} {format_duration(link.latency_s)} and "
        f"{format_bytes(round(link.bytes_per_s))}/s ({_origin(link)})"
        for link in assignment.links
    )
    return f"What they exchange is counted with {figures}."


def _origin(link: LinkFigure) -> str:
    error = f"within {link.relative_error:.0%}"
    if link.provenance is Provenance.MEASURED:
        return f"measured, {error}, hardware profile {link.profile_id}"
    if link.profile_id:
        return f"estimated, {error}, from fewer or more ranks in hardware profile {link.profile_id}"
    return f"estimated, {error}, from the catalogue"


def _explain_parts(assignment: Assignment, spec: ModelSpec) -> str:
    num_parts = part_of(assignment, spec, rank=0).parts
    holders = "workers" if assignment.has_mates else "devices"
    what = "heads, experts" if spec.experts is not None else "heads, their part of the MLP"
    copies = ""
    if spec.num_kv_heads < num_parts:
        num_copies = num_parts // spec.num_kv_heads
        copies = f" There are {spec.num_kv_heads} KV heads, so {num_copies} {holders} keep the same one."
    return (
        f"Of every layer {num_parts} {holders} each have their {what} and their part of the vocabulary, and add up "
        f"their results twice in a layer.{copies}"
    )


def _explain_stages(assignment: Assignment) -> str:
    sizes = assignment.parallel.stage_layers
    reason = ""
    if sizes:
        listed = ", ".join(map(str, sizes))
        reason = f" They have {listed} layers: that was asked for, or it evens out their work, or others would not fit."
    return (
        f"Its {assignment.parallel.pp} stages have the layers one after the other: hidden states go from stage to "
        f"stage, all compute a part of the logits, and each stage has a batch of its own under way.{reason}"
    )


def _explain_shards(assignment: Assignment) -> str:
    cp = assignment.parallel.cp
    rest = "compute a share of a step's tokens each, with the weights in full"
    if assignment.parallel.cp_ffn == "tensor":
        rest = "share the weights"
    return (
        f"Its {cp} cache shards have {assignment.num_blocks // cp} of the {assignment.num_blocks} blocks each. The "
        f"blocks of every sequence are spread over them; attention is computed where they lie and then merged. Outside "
        f"attention the shards {rest}."
    )


def _holding(assignment: Assignment, spec: ModelSpec, rank: int) -> str:
    part, cp, pp = part_of(assignment, spec, rank=rank), assignment.parallel.cp, assignment.parallel.pp
    last = part.first_layer + part.num_layers - 1
    layers = f"layers {part.first_layer} to {last}" if part.num_layers > 1 else f"layer {last}"
    head = "the head" if pp == 1 else f"1/{pp} of the head"
    ends = f" with the embedding and {head}" if part.first_layer == 0 else f" with {head}"
    kv = f"the keys and values of {part.cached_heads_of(spec)} of {spec.num_kv_heads} KV heads"
    share = f", for 1/{cp} of each sequence" if cp > 1 else ""
    return (
        f"{layers} of {spec.num_layers}{ends}, {part.query_heads_of(spec)} of {spec.num_heads} heads, and {kv}{share}"
    )
