"""The groups as the router knows them: who serves what, where, how busy, and how fast."""

from collections.abc import Iterator
from dataclasses import dataclass

from headway.core.latency import LatencyModel
from headway.core.load import LoadReport
from headway.core.plan import Role, ServingPlan
from headway.core.slo import Slo


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """A model-parallel group, by its leading worker.

    Attributes:
        endpoint: host:port of the leader.
        report: the leader's latest; None while no stream to it lives.
        reported_at_s: when that came.
        connected_at_s: when the stream began that it came on.
        latency: seconds of its steps, from the plan; None where the plan does not know it.
        last_chosen: number of the latest decision for it; 0 for none.
        role: what the plan has it do.
        block_bytes: of a KV block; 0 where blocks cannot go to other groups.
    """

    worker_id: str
    group_id: str
    endpoint: str
    report: LoadReport | None = None
    reported_at_s: float = 0.0
    connected_at_s: float = 0.0
    latency: LatencyModel | None = None
    last_chosen: int = 0
    role: Role = Role.BOTH
    block_bytes: int = 0

    def update(self, report: LoadReport, *, now_s: float) -> None:
        """Takes in a load report; the first one makes it a candidate."""
        if self.report is None:
            self.connected_at_s = now_s
        self.report = report
        self.reported_at_s = now_s

    def disconnect(self) -> None:
        """Its stream broke: no candidate until it reports again."""
        self.report = None


class Fleet:
    """All groups, and the plan that they carry out."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._plan: ServingPlan | None = None

    @property
    def groups(self) -> list[Group]:
        return list(self._groups.values())

    @property
    def models(self) -> list[str]:
        """Names of the models that are planned or served."""
        planned = [model.name for model in self._plan.models] if self._plan else []
        served = [group.report.model for group in self._groups.values() if group.report and group.report.model]
        return sorted({*planned, *served})

    def knows(self, model: str) -> bool:
        """Whether a model is planned or served."""
        return (self._plan is not None and self._plan.model(model) is not None) or any(
            group.report is not None and group.report.model == model for group in self._groups.values()
        )

    def slo(self, model: str) -> Slo:
        """The default objective of a model's requests."""
        deployment = self._plan.model(model) if self._plan else None
        return deployment.slo if deployment else Slo()

    def join(self, worker_id: str, *, endpoint: str, group_id: str) -> Group:
        """The group that a worker leads; a new one when it was started anew, at another endpoint."""
        group = self._groups.get(worker_id)
        if group is None or group.endpoint != endpoint:
            group = Group(worker_id=worker_id, group_id=group_id or worker_id, endpoint=endpoint)
            self._groups[worker_id] = group
            self._assign(group)
        return group

    def leave(self, worker_id: str, *, endpoint: str) -> None:
        """The worker is gone; no change if it has joined anew since."""
        group = self._groups.get(worker_id)
        if group is not None and group.endpoint == endpoint:
            del self._groups[worker_id]

    def choose(self, worker_id: str, number: int) -> None:
        """Notes that decision `number` was for this worker's group."""
        self._groups[worker_id].last_chosen = number

    def apply(self, plan: ServingPlan) -> None:
        """Takes groups, latency models and objectives from a plan."""
        self._plan = plan
        for group in self._groups.values():
            self._assign(group)

    def serving(self, model: str) -> Iterator[tuple[Group, LoadReport]]:
        """Groups that take requests for a model just now, with their latest reports."""
        for group in self._groups.values():
            report = group.report
            if report is not None and report.model == model and report.state == "ready":
                yield group, report

    def _assign(self, group: Group) -> None:
        assignment = self._plan.assignment_of(group.worker_id) if self._plan else None
        if assignment is not None:
            group.group_id = assignment.group_id
            group.latency = assignment.prediction.latency
            group.role = assignment.role
            moves = assignment.enable_prefix_cache and not assignment.ranks
            group.block_bytes = assignment.kv_cache_bytes // max(1, assignment.num_blocks) if moves else 0
