"""The groups as the router knows them: who serves what, where, how busy, and how fast."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field

from headway.core.latency import LatencyModel
from headway.core.load import LoadReport
from headway.core.plan.serving import Assignment, Role, ServingPlan
from headway.core.slo import Slo
from headway.router.drift import StepDrift
from headway.router.latency_predictor import LatencyPredictor
from headway.router.lateness import Lateness
from headway.router.place import Place


@dataclass(slots=True, kw_only=True, eq=False)
class Replica:
    """A model on a group.

    Attributes:
        loaded_at_s: when the leader first told of it.
        report: the leader's latest on this model; None while no stream to it lives.
        drift: of its steps from the plan; None where the plan does not know them.
        lateness: of tokens, beyond what the steps predict.
        last_chosen: number of the latest decision for it; 0 for none.
        role: what the plan has it do.
        block_bytes: of a KV block; 0 where blocks cannot go to other groups.
        stage_latencies: seconds of its steps in each stage of the pipeline, from the plan; empty where that is unknown.
    """

    group: "Group"
    model: str
    loaded_at_s: float = 0.0
    report: LoadReport | None = None
    drift: StepDrift | None = None
    lateness: Lateness = field(default_factory=Lateness)
    last_chosen: int = 0
    role: Role = Role.BOTH
    block_bytes: int = 0
    stage_latencies: tuple[LatencyModel, ...] = ()

    @property
    def place(self) -> Place:
        return self.group.group_id, self.model

    def latency(self, *, now_s: float) -> LatencyModel | None:
        """Seconds of its steps; None where the plan does not know it."""
        return self.drift.latency(now_s=now_s) if self.drift is not None else None

    def cautious(self, *, now_s: float) -> LatencyModel | None:
        """The same as promises rest on: where nobody has measured the steps by themselves, nearly all the latest
        answers were no slower."""
        if self.drift is None:
            return None
        latency = self.drift.cautious(now_s=now_s)
        return latency.part(self.lateness.ratio(now_s=now_s)) if self.is_estimated else latency

    def usual(self, *, now_s: float) -> LatencyModel | None:
        """What its steps usually take, where nobody has measured them by themselves and the latest were seen too long
        ago to tell how fast it is now; None elsewhere."""
        return self.drift.usual(now_s=now_s) if self.drift is not None and self.is_estimated else None

    @property
    def fitted(self) -> LatencyModel | None:
        """What its steps took when it last had any; None where the plan does not know it."""
        return self.drift.fitted if self.drift is not None else None

    @property
    def observed_s(self) -> float:
        """Seconds of live steps that its latency is corrected by."""
        return self.drift.observed_s if self.drift is not None else 0.0

    @property
    def is_one_pass(self) -> bool:
        """Without blocks it does not generate."""
        return self.report is not None and self.report.num_blocks == 0

    @property
    def is_estimated(self) -> bool:
        """Whether nobody has measured the plan's times; a pipeline's live steps say nothing of them."""
        return self.drift is not None and len(self.stage_latencies) <= 1 and self.drift.planned.origin == "estimated"

    def is_proven(self, *, now_s: float) -> bool:
        """Whether what is predicted of it rests on more than an estimate."""
        return self.drift is None or not self.is_estimated or self.drift.is_proven(now_s=now_s)

    def is_as_planned_for(self, other: "Replica") -> bool:
        """Whether the plan foretells the same steps of both."""
        return self.drift is not None and other.drift is not None and self.drift.planned == other.drift.planned

    def update(self, report: LoadReport, *, now_s: float) -> None:
        """Takes in the leader's report on this model."""
        self.report = report
        if self.drift is not None and len(self.stage_latencies) == 1:
            self.drift.observe(report.work, now_s=now_s)

    def assign(self, assignment: Assignment) -> None:
        """Takes over what the plan says of it. What live steps took tells of the same prediction only."""
        latency = assignment.prediction.latency
        if self.drift is None or self.drift.planned != latency:
            self.drift, self.lateness = StepDrift(latency), Lateness()
        self.stage_latencies = assignment.pipeline_latencies
        self.role = assignment.role
        moves = assignment.enable_prefix_cache and not assignment.ranks
        self.block_bytes = assignment.kv_cache_bytes // max(1, assignment.num_blocks) if moves else 0


@dataclass(slots=True, kw_only=True, eq=False)
class Group:
    """A model-parallel group, by its leading worker.

    Attributes:
        endpoint: host:port of the leader.
        replicas: by model, as last reported; they share the group's devices.
        state: of a leader that has no model; 'unreachable' while no stream to it lives.
        reported_at_s: when the latest reports came.
        connected_at_s: when the stream began that they came on.
        predictor: what was leased to it of models that answer in one pass.
    """

    worker_id: str
    group_id: str
    endpoint: str
    replicas: dict[str, Replica] = field(default_factory=dict)
    state: str = "unreachable"
    reported_at_s: float = 0.0
    connected_at_s: float = 0.0
    predictor: LatencyPredictor = field(default_factory=LatencyPredictor)

    def update(self, reports: Sequence[LoadReport], *, now_s: float) -> None:
        """Takes in a leader's load reports; the first ones make it a candidate."""
        if self.state == "unreachable":
            self.connected_at_s = now_s
        self.reported_at_s = now_s
        self.state = reports[0].state
        by_model = {report.model: report for report in reports if report.model}
        for model in self.replicas.keys() - by_model.keys():
            del self.replicas[model]
        for model, report in by_model.items():
            if model not in self.replicas:
                self.replicas[model] = Replica(group=self, model=model, loaded_at_s=now_s)
            self.replicas[model].update(report, now_s=now_s)

    def disconnect(self) -> None:
        """Its stream broke: no candidate until it reports again."""
        self.state = "unreachable"
        for replica in self.replicas.values():
            replica.report = None


class Fleet:
    """All groups, and the plan that they carry out."""

    def __init__(self) -> None:
        self._groups: dict[str, Group] = {}
        self._plan: ServingPlan | None = None
        self._awake_since_s: dict[str, float] = {}

    @property
    def groups(self) -> list[Group]:
        """Those of the plan first, in its order."""
        return list(self._groups.values())

    @property
    def models(self) -> list[str]:
        """Names of the models that are planned or served."""
        planned = [model.name for model in self._plan.models] if self._plan else []
        served = [replica.model for replica in self._replicas() if replica.report is not None]
        return sorted({*planned, *served})

    def knows(self, model: str) -> bool:
        """Whether a model is planned, or served by more than what the plan has ended by now."""
        if self._plan is not None and self._plan.model(model) is not None:
            return True
        reports = (replica.report for replica in self._replicas() if replica.model == model)
        return any(report is not None and not (self._plan and report.state == "draining") for report in reports)

    def has_ended(self, model: str) -> bool:
        """Whether the plan is one without a model, which nobody serves any more."""
        return self._plan is not None and not self.knows(model)

    def may_sleep(self, model: str) -> bool:
        """Whether a model is unloaded while nobody asks for it."""
        deployment = self._plan.model(model) if self._plan else None
        return deployment is not None and deployment.may_sleep

    def awake_since_s(self, model: str) -> float:
        """Since when a model that may sleep has had a group; 0 where nobody could have waited for that."""
        return self._awake_since_s.get(model, 0.0) if self.may_sleep(model) else 0.0

    def slo(self, model: str) -> Slo:
        """The default objective of a model's requests."""
        deployment = self._plan.model(model) if self._plan else None
        return deployment.slo if deployment else Slo()

    def group(self, worker_id: str) -> Group | None:
        """The one that a worker leads."""
        return self._groups.get(worker_id)

    def replica(self, worker_id: str, model: str) -> Replica | None:
        """A model on the group that a worker leads."""
        group = self._groups.get(worker_id)
        return group.replicas.get(model) if group is not None else None

    def join(self, worker_id: str, *, endpoint: str, group_id: str) -> Group:
        """The group that a worker leads; a new one when it was started anew, at another endpoint."""
        group = self._groups.get(worker_id)
        if group is None or group.endpoint != endpoint:
            group = Group(worker_id=worker_id, group_id=group_id or worker_id, endpoint=endpoint)
            self._groups[worker_id] = group
            self._assign(group)
            self._sort()
        return group

    def expects(self, group: Group, reports: Sequence[LoadReport]) -> bool:
        """Whether the plan has every model of these reports on the group, but for those that it has told of already."""
        planned = {each.model for each in self._plan.assignments_of(group.worker_id)} if self._plan else set()
        return all(report.model in planned or report.model in group.replicas for report in reports if report.model)

    def update(self, group: Group, reports: Sequence[LoadReport], *, now_s: float) -> None:
        """Takes in the load reports of a group's leader."""
        known = group.replicas.keys() & {report.model for report in reports}
        if newcomers := {report.model for report in reports} - known:
            there = {replica.model for replica in self._replicas()}
            self._awake_since_s |= dict.fromkeys(newcomers - there, now_s)
        group.update(reports, now_s=now_s)
        if known != group.replicas.keys():
            self._assign(group)

    def leave(self, worker_id: str, *, endpoint: str) -> None:
        """The worker is gone; no change if it has joined anew since."""
        group = self._groups.get(worker_id)
        if group is not None and group.endpoint == endpoint:
            del self._groups[worker_id]

    def choose(self, worker_id: str, model: str, number: int) -> None:
        """Notes that decision `number` was for a model on this worker's group."""
        self._groups[worker_id].replicas[model].last_chosen = number

    def apply(self, plan: ServingPlan) -> None:
        """Takes groups, latency models and objectives from a plan."""
        self._plan = plan
        for group in self._groups.values():
            self._assign(group)
        self._sort()

    def serving(self, model: str) -> Iterator[tuple[Replica, LoadReport]]:
        """Replicas that take requests for a model just now, with their latest reports."""
        for group in self._groups.values():
            replica = group.replicas.get(model)
            if replica is not None and (report := replica.report) is not None and report.state == "ready":
                yield replica, report

    def _replicas(self) -> Iterator[Replica]:
        return (replica for group in self._groups.values() for replica in group.replicas.values())

    def _sort(self) -> None:
        assignments = self._plan.assignments if self._plan else ()
        order = {assignment.worker_id: number for number, assignment in reversed([*enumerate(assignments)])}
        self._groups = dict(sorted(self._groups.items(), key=lambda item: order.get(item[0], len(order))))

    def _assign(self, group: Group) -> None:
        for assignment in self._plan.assignments_of(group.worker_id) if self._plan else ():
            group.group_id = assignment.group_id
            replica = group.replicas.get(assignment.model)
            if replica is not None:
                replica.assign(assignment)
