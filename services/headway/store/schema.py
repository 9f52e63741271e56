"""Every key that Headway keeps in Redis: its pattern, type, lifetime and who writes it.

All keys start with the stack's namespace, e.g. `headway:plan:current`.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class KeyFamily:
    """A family of keys. `pattern` has the placeholders that `key` fills in."""

    pattern: str
    kind: str
    ttl_s: float | None
    writer: str
    meaning: str

    def key(self, namespace: str, *parts: str) -> str:
        return f"{namespace}:{self.pattern.format(*parts)}"


MEMBER = KeyFamily("member:{}:{}", "string (JSON)", 3.0, "each process", "lease of a live process, by kind and id")
DEPLOYMENT = KeyFamily(
    "deployment", "string (JSON)", None, "headway up, controller", "models and workers that the user wants"
)
PLAN = KeyFamily("plan:{}", "string (JSON)", None, "controller", "a plan, by id")
PLAN_CURRENT = KeyFamily("plan-current", "string", None, "controller (compare-and-set)", "id of the desired plan")
PLAN_HISTORY = KeyFamily("plan-history", "list", None, "controller", "plan ids, newest first, 100 at most")
PROFILE = KeyFamily("profile:{}", "string (JSON)", None, "profiler", "a profile, by id")
STAGE_PROFILE = KeyFamily(
    "stage-profile:{}", "string (JSON)", None, "profiler", "imported stage latencies of a model in one layout, by id"
)
SLICE_PROFILE = KeyFamily(
    "slice-profile:{}", "string (JSON)", None, "profiler", "imported latencies of slices of sequences, by id"
)
IMPORTED = KeyFamily("imported:{}", "string (JSON)", None, "profiler", "summary of an imported profile, by id")
PROCESS = KeyFamily("process:{}", "string (JSON)", None, "controller", "a launched process: pid, command, restarts")
PREFIX = KeyFamily("prefix:{}", "string (JSON)", None, "kvcache", "a pinned prefix, by name")
ATTAINMENT = KeyFamily("attainment:{}", "hash", None, "router", "requests by SLO outcome, by model")

FAMILIES = (
    MEMBER,
    DEPLOYMENT,
    PLAN,
    PLAN_CURRENT,
    PLAN_HISTORY,
    PROFILE,
    STAGE_PROFILE,
    SLICE_PROFILE,
    IMPORTED,
    PROCESS,
    PREFIX,
    ATTAINMENT,
)
