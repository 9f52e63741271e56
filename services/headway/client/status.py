"""The state of a stack, as `status` returns it. Field names are those of the protobuf messages."""

from dataclasses import dataclass, field

from headway.core.cluster import Hardware
from headway.core.latency import LatencyModel
from headway.core.plan.serving import ServingPlan


@dataclass(frozen=True, slots=True, kw_only=True)
class Fault:
    """A fault that start-up cannot get past by itself; see `headway.core.errors.HeadwayError`."""

    code: str
    message: str
    hint: str = ""
    field: str = ""
    retry_after_s: float | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessStatus:
    """A process of the stack.

    Attributes:
        kind: 'router', 'worker', ...
        state: 'starting', 'ready', 'restarting', 'draining' or 'stopped'.
        started_at_s: seconds since 1970.
        cores: the machine's cores that it is bound to; () for none.
    """

    name: str
    kind: str
    pid: int
    state: str
    endpoint: str = ""
    metrics_endpoint: str = ""
    num_restarts: int = 0
    started_at_s: float = 0.0
    cores: tuple[int, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerStatus:
    """The state of a worker; `model`, the first of its `models`, is empty until it has loaded one.

    Attributes:
        rank: its rank in its group of `num_ranks` workers; 0 leads.
    """

    worker_id: str
    group_id: str
    model: str
    state: str
    hardware: Hardware | None = None
    rank: int = 0
    num_ranks: int = 1
    models: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class ControllerStatus:
    """Processes and workers as the controller sees them.

    Attributes:
        ready: whether everything in the plan is loaded.
        waiting_for: what is being waited for, for people; empty when ready.
        progress: in [0, 1].
        answer_overhead_s: seconds that an answer takes from the client to the group and back, besides the model, as the
            stack was told.
        queue_policy: order in which waiting requests are served.
        faults: what is wrong that requests do not feel, for people.
        asleep: models that nobody has asked for; they are loaded when they are asked for.
    """

    processes: tuple[ProcessStatus, ...] = ()
    workers: tuple[WorkerStatus, ...] = ()
    plan_id: str = ""
    ready: bool = False
    waiting_for: str = ""
    progress: float = 0.0
    fault: Fault | None = None
    answer_overhead_s: float = 0.0
    queue_policy: str = "fcfs"
    faults: tuple[str, ...] = ()
    asleep: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupStatus:
    """The load of one group.

    Attributes:
        num_in_flight: requests that the router sent there and that have not ended.
        num_running, num_waiting: sequences in the running batch, and queued for it.
        report_age_s: seconds since the worker's last load report.
        backend: what runs an encoder's layers, in words; empty where none was asked for.
        latency: latency model of its steps as the router has it: profiled, and corrected by live steps. None where it
            is unknown.
        observed_s: seconds of the live steps that it is corrected by.
    """

    group_id: str
    worker_id: str
    endpoint: str
    model: str
    state: str
    num_in_flight: int = 0
    num_running: int = 0
    num_waiting: int = 0
    num_blocks: int = 0
    num_free_blocks: int = 0
    report_age_s: float = 0.0
    latency: LatencyModel | None = None
    observed_s: float = 0.0
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelAttainment:
    """Counts of one model's requests that had an objective, by outcome; rejected ones count as not attained.

    Attributes:
        num_foretold_met, num_foretold_missed: counts by what the router had predicted of them, where it could.
    """

    model: str
    num_met: int = 0
    num_missed: int = 0
    num_rejected: int = 0
    num_completed: int = 0
    num_foretold_met: int = 0
    num_foretold_missed: int = 0

    @property
    def attainment(self) -> float | None:
        """The share that met the objective, of all that had one; None before the first."""
        total = self.num_met + self.num_missed + self.num_rejected
        return self.num_met / total if total else None

    @property
    def predicted(self) -> float | None:
        """The share that the router predicted to meet it; None where it could not predict."""
        total = self.num_foretold_met + self.num_foretold_missed
        return self.num_foretold_met / total if total else None


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArrivals:
    """Requests for a model that have no place yet, and all that have come since the router started."""

    model: str
    num_waiting: int = 0
    num_arrived: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetStatus:
    """The groups as the router sees them; `run_id` is of the router's process."""

    groups: tuple[GroupStatus, ...] = ()
    attainments: tuple[ModelAttainment, ...] = ()
    num_in_flight: int = 0
    num_queued: int = 0
    arrivals: tuple[ModelArrivals, ...] = ()
    run_id: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ClusterStatus:
    """Everything that `headway status` shows."""

    controller: ControllerStatus = field(default_factory=ControllerStatus)
    fleet: FleetStatus = field(default_factory=FleetStatus)
    plan: ServingPlan | None = None
