"""The state that a worker writes into its membership lease."""

from dataclasses import dataclass

from headway.worker.replicas import Replicas

_STATES = ("ready", "rank", "draining")


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerState:
    """'starting', 'loading', 'ready', 'draining' or, for a rank that does not lead, 'rank'.

    A worker is ready as soon as one of its models is; `models` are those that are in that state. `group_id` is empty
    outside a plan's groups.
    """

    state: str
    models: tuple[str, ...] = ()
    group_id: str = ""
    rank: int = 0


def state_of(replicas: Replicas, *, is_loading: bool) -> WorkerState:
    """The state of a worker with these replicas, while it loads another one or not."""
    for state in _STATES:
        there = [replica for replica in replicas if replica.state == state]
        if there:
            order = there[0].loaded.order
            models = tuple(replica.model for replica in there)
            return WorkerState(state=state, models=models, group_id=order.group_id, rank=order.rank)
    return WorkerState(state="loading" if is_loading else "starting")
