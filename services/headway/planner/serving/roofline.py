"""Step latencies estimated from the hardware's name, for models that nobody has measured yet.

A roofline: every product runs at the device's usual FLOP/s, every weight and every key and value is read once a step
at its bandwidth. In a group each worker does this for its part, and they exchange what they have (`cost`).
Good to about a factor of two, which is enough to size batches and to compare models with each other; a measured profile
replaces it as soon as there is one.
"""

from headway.core.catalogue import Catalogue
from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.links import Links, UsualLinks
from headway.core.model import ModelSpec
from headway.core.parallel_config import SINGLE, ParallelConfig
from headway.planner.serving.cost import GroupCost, cost_of_group
from headway.planner.serving.device_roofline import fabric_of, roofline_of

ESTIMATE_ERROR = 0.5
"""Relative error that an estimate states for itself."""


def estimate_latency(
    spec: ModelSpec,
    hardware: Hardware,
    parallel: ParallelConfig = SINGLE,
    *,
    links: Links | None = None,
    catalogue: Catalogue | None = None,
) -> LatencyModel:
    """Coefficients from the shape of the model, or of the largest part of it where a group shares each layer.

    In a pipeline a prompt goes through the stages one after the other; decodes are split into a batch for each stage,
    and a step is the time until each has had its turn at the slowest and at the head.

    Args:
        hardware: of every worker of the group.
        links: between the workers; None for the usual ones.
        catalogue: None for the built-in one.
    """
    cost = _cost(spec, hardware, parallel, links, catalogue)
    stages, head = [stage.total for stage in cost.stages], cost.head.total
    return LatencyModel(
        base_s=len(stages) * (max(stage.base_s for stage in stages) + head.base_s),
        per_prefill_token_s=sum(stage.token_s for stage in stages),
        per_prefill_pair_s=sum(stage.pair_s for stage in stages),
        per_decode_s=max(stage.decode_s for stage in stages) + head.decode_s,
        per_context_token_s=max(stage.context_s for stage in stages),
        relative_error=ESTIMATE_ERROR,
        origin="estimated",
    )


def estimate_stage_latencies(
    spec: ModelSpec, hardware: Hardware, parallel: ParallelConfig, *, catalogue: Catalogue | None = None
) -> tuple[LatencyModel, ...]:
    """Estimates what one batch takes in each stage of the pipeline, the first stage first; see `estimate_latency`.

    All stages compute the head together; it is counted once, behind the last.
    """
    cost = _cost(spec, hardware, parallel, None, catalogue)
    *before, last = [stage.total for stage in cost.stages]
    return tuple(
        LatencyModel(
            base_s=stage.base_s,
            per_prefill_token_s=stage.token_s,
            per_prefill_pair_s=stage.pair_s,
            per_decode_s=stage.decode_s,
            per_context_token_s=stage.context_s,
            relative_error=ESTIMATE_ERROR,
            origin="estimated",
        )
        for stage in (*before, last + cost.head.total)
    )


def _cost(
    spec: ModelSpec, hardware: Hardware, parallel: ParallelConfig, links: Links | None, catalogue: Catalogue | None
) -> GroupCost:
    known = links or UsualLinks(fabric=fabric_of(hardware, catalogue))
    return cost_of_group(spec, parallel, roofline=roofline_of(hardware, catalogue), links=known)
