"""The fleet as others may see it."""

from dataclasses import dataclass

from headway.core.latency import LatencyModel
from headway.router.attainment import ModelAttainment


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupLoad:
    """A model on a group, its load as last reported, and its leases.

    Attributes:
        state: the worker's own, or 'unreachable' while no stream to it lives.
        num_in_flight: leases given out and not ended.
        report_age_s: seconds since the report.
        latency: of its steps, from which answers are predicted; None where the plan knows none.
        observed_s: seconds of live steps that it is corrected by.
        backend: what runs an encoder's layers, in words; empty where none was asked for.
    """

    group_id: str
    worker_id: str
    endpoint: str
    model: str
    state: str
    num_in_flight: int
    num_running: int
    num_waiting: int
    num_blocks: int
    num_free_blocks: int
    report_age_s: float
    latency: LatencyModel | None = None
    observed_s: float = 0.0
    backend: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class ModelArrivals:
    """What is asked of a model.

    Attributes:
        num_waiting: requests that have no place yet.
        num_arrived: requests since the router started, also those that were refused.
    """

    model: str
    num_waiting: int
    num_arrived: int


@dataclass(frozen=True, slots=True, kw_only=True)
class FleetView:
    """A snapshot of all groups, and of how requests fare. `run_id` is of the process that counted the arrivals."""

    groups: tuple[GroupLoad, ...]
    attainments: tuple[ModelAttainment, ...]
    num_in_flight: int
    num_queued: int
    arrivals: tuple[ModelArrivals, ...] = ()
    run_id: str = ""
