"""Groups that span machines: which part of a pipeline lies in each, and what handing over between them takes. Pure."""

from dataclasses import dataclass, replace

from headway.core.stage_profile import StageBatch, StageProfile


@dataclass(frozen=True, slots=True, kw_only=True)
class NodeLink:
    """The link that a group may use between machines.

    Attributes:
        name: its name in the catalogue.
        latency_s: the seconds to hand over however little.
        bytes_per_s: the bytes per second that leave one device.
    """

    name: str
    latency_s: float
    bytes_per_s: float

    def send_s(self, num_bytes: float) -> float:
        return self.latency_s + num_bytes / self.bytes_per_s


def span(pp: int, op: int, *, node: int) -> tuple[int, ...]:
    """Devices that a pipeline of `pp` stages of `op` devices has in each of its machines, where these have `node`.

    One that fits a machine lies in one. A larger one has as many whole stages in each machine as fit, and what is left
    in the last. () where a stage fits none. No two parts of it fit one machine, so they need not be kept apart.
    """
    if pp * op <= node:
        return (pp * op,)
    if op > node:
        return ()
    full, rest = divmod(pp, node // op)
    return (*[node // op * op] * full, *([rest * op] if rest else []))


def over_nodes(profile: StageProfile, link: NodeLink, *, node: int) -> StageProfile:
    """A profile within one machine, as its pipeline runs over machines of `node` devices each: the last stage in each
    machine but the last hands over through `link`.

    Where the profile does not say what a stage hands over, an upper bound is taken: all activations that a device of it
    holds at a time, among which are those. What the profile counts for handing over within a machine stays in it.
    """
    if len(span(profile.pp, profile.op, node=node)) < 2:
        return profile
    stages = range(profile.pp - 1)
    crossing = [stage for stage in stages if (stage + 1) % (node // profile.op) == 0]

    def further_s(batch: StageBatch, stage: int) -> float:
        return link.send_s((batch.handover_bytes or batch.activation_bytes)[stage]) if stage in crossing else 0.0

    batches = tuple(
        replace(
            batch,
            stage_latency_s=tuple(
                latency_s + further_s(batch, stage) for stage, latency_s in enumerate(batch.stage_latency_s)
            ),
        )
        for batch in profile.batches
    )
    return replace(profile, batches=batches)
