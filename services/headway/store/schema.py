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
MEMBERS_CHANGED = KeyFamily(
    "members-changed", "channel", None, "each process", "announces that a process came, changed or left"
)
DEPLOYMENT = KeyFamily(
    "deployment", "string (JSON)", None, "headway up, controller", "models and workers that the user wants"
)
PLAN = KeyFamily("plan:{}", "string (JSON)", None, "controller", "a plan, by id")
PLAN_CURRENT = KeyFamily("plan-current", "string", None, "controller (compare-and-set)", "id of the desired plan")
PLAN_HISTORY = KeyFamily("plan-history", "list", None, "controller", "plan ids, newest first, 100 at most")
PLACEMENT = KeyFamily("placement:{}", "string (JSON)", None, "controller", "a placement that was applied, by id")
TRAINING_PLAN = KeyFamily("training-plan:{}", "string (JSON)", None, "planner", "a training plan, by id")
REPLANNING = KeyFamily("replacement", "string (JSON)", None, "controller", "how to re-plan, in a loop")
REPLANNING_DECISIONS = KeyFamily(
    "replacement-decisions", "list (JSON)", None, "controller", "what came of re-planning, newest first, 50 at most"
)
PROFILE = KeyFamily("profile:{}", "string (JSON)", None, "profiler", "a profile, by id")
STAGE_PROFILE = KeyFamily(
    "stage-profile:{}", "string (JSON)", None, "profiler", "imported stage latencies of a model in one layout, by id"
)
SLICE_PROFILE = KeyFamily(
    "slice-profile:{}", "string (JSON)", None, "profiler", "imported latencies of slices of sequences, by id"
)
IMPORTED = KeyFamily("imported:{}", "string (JSON)", None, "profiler", "summary of an imported profile, by id")
HARDWARE = KeyFamily(
    "hardware:{}", "string (JSON)", None, "headway profile, profiler", "a machine whose hardware was timed, by id"
)
HARDWARE_TIMINGS = KeyFamily(
    "hardware-timings:{}", "hash (JSON)", None, "headway profile, profiler", "timings of a machine's hardware, by cell"
)
HARDWARE_LINKS = KeyFamily(
    "hardware-links:{}",
    "string (JSON)",
    None,
    "headway profile, profiler",
    "what was fitted to a machine's collectives, which plans rest on, by the machine's id",
)
MEASUREMENT = KeyFamily(
    "measurement:{}",
    "string (JSON)",
    None,
    "profiler",
    "seconds of a program, by hash of its operators, shapes and dtypes, hardware and versions",
)
MODEL_PROFILE = KeyFamily("model-profile:{}", "string (JSON)", None, "profiler", "costs of a model's operators, by id")
MEASURING_JOB = KeyFamily("measuring-job:{}", "string (JSON)", None, "profiler", "how far a job is, by id")
MEASURING_WORK = KeyFamily(
    "measuring-work:{}", "string (JSON)", None, "profiler", "what a job that runs is to measure, by the job's id"
)
SEARCH_JOB = KeyFamily("search-job:{}", "string (JSON)", None, "planner", "how far a search is, by id; the latest 100")
SEARCH_WORK = KeyFamily("search-work:{}", "string (JSON)", None, "planner", "what a search searches, by the job's id")
SEARCH_BEST = KeyFamily(
    "search-best:{}", "string (JSON)", None, "planner", "what a search goes on from, by the job's id"
)
SEARCH_RESULT = KeyFamily("search-result:{}", "string (JSON)", None, "planner", "what a search found, by the job's id")
KEPT = KeyFamily(
    "kept",
    "string",
    None,
    "controller, headway up",
    "number of the latest copy: lower where Redis has lost something, higher where something was written since",
)
SPOILT = KeyFamily(
    "spoilt", "hash", 7 * 86_400.0, "each process", "values that could not be read and were set aside, by key"
)
CONTROLLER_LEASE = KeyFamily(
    "controller-lease", "string", 5.0, "controller", "who may launch and end processes: epoch, pid and start"
)
CONTROLLER_EPOCH = KeyFamily(
    "controller-epoch", "string", None, "controller", "how many controllers have had the lease until now"
)
PROCESS = KeyFamily("process:{}", "string (JSON)", None, "controller", "a launched process: pid, command, restarts")
API_KEYS = KeyFamily("api-keys", "hash (JSON)", None, "controller", "API keys that were made, hashed, by id")
ANSWER = KeyFamily("answer:{}", "hash (JSON)", 600.0, "gateway", "a stream that can be taken up again, and its owner")
QUARANTINE = KeyFamily(
    "quarantine", "sorted set", 3600.0, "gateway", "fingerprints of requests that took down two workers, by their end"
)
SUSPECTS = KeyFamily(
    "suspects", "sorted set", 3600.0, "gateway", "fingerprints of requests that may have taken down one, by their end"
)
SUSPECT_TURN = KeyFamily("suspect-turn:{}", "string", 5.0, "gateway", "which suspect of a model is being tried")
ANSWER_OUTPUTS = KeyFamily(
    "answer-outputs:{}", "list (JSON)", 600.0, "gateway", "what workers gave for such a stream, by its id"
)
PREFIX = KeyFamily("prefix:{}", "string (JSON)", None, "kvcache", "a pinned prefix, by name")
ATTAINMENT = KeyFamily("attainment:{}", "hash", None, "router", "requests by SLO outcome, by model")
TRAFFIC = KeyFamily(
    "traffic:{}", "list", 7 * 86_400.0, "router", "requests that arrived in an hour since 1970, some in each entry"
)
TRAFFIC_COUNTS = KeyFamily("traffic-counts", "hash", None, "router", "requests that are recorded, by hour since 1970")
