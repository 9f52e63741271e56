"""Who may reach which ports of a release, as network policies are to have it.

Who calls whom is taken from what processes allow each other (`headway.rpc.permissions`), and not from the chart.
"""

from dataclasses import dataclass

from headway.rpc.permissions import CALLERS

STRANGER = "stranger"
"""A pod of another namespace."""
SERVICES = ("gateway", "router", "kvcache", "planner", "profiler", "controller")
COMPONENTS = (*SERVICES, "worker", "redis")
_SERVERS = {
    "WorkerService": "worker",
    "CellService": "worker",
    "RouterService": "router",
    "KvCacheService": "kvcache",
    "PlannerService": "planner",
    "ProfilerService": "profiler",
    "ControllerService": "controller",
}


@dataclass(frozen=True, slots=True)
class Port:
    """A port that pods of a component listen at.

    Attributes:
        kind: `calls` of processes, `metrics` for Prometheus, `front` for clients, `inner` between workers alone.
    """

    component: str
    number: int
    kind: str


INNER_PORT = 29500
"""Where workers of a group might meet; any will do."""
PORTS = (
    Port("gateway", 8000, "front"),
    Port("gateway", 9000, "front"),
    *(Port(service, 9000, "calls") for service in SERVICES if service != "gateway"),
    Port("worker", 9000, "calls"),  # of the cell
    Port("worker", 9100, "calls"),
    *(Port(component, 9090, "metrics") for component in (*SERVICES, "worker")),
    Port("worker", 9200, "metrics"),
    Port("worker", INNER_PORT, "inner"),
    Port("redis", 6379, "calls"),
)


def callers(component: str) -> set[str]:
    """Those whose processes call a component's, and the controller's pod: people run commands there."""
    if component == "redis":
        return {*COMPONENTS} - {"redis"}
    roles = {
        role
        for method, roles in CALLERS.items()
        if _SERVERS[method.split("/")[1].rpartition(".")[2]] == component
        for role in roles
    }
    return {"controller"} - {component} | {"worker" if role == "cell" else role for role in roles}


def may_reach(caller: str, port: Port) -> bool:
    """Where everybody may ask the gateway and scrape metrics. What goes out of the release's pods is bounded by whom
    they call, what comes in by the port besides."""
    if caller == STRANGER:
        return port.kind in ("front", "metrics")
    return caller in callers(port.component) and (port.kind != "inner" or caller == "worker")
