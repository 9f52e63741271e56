"""Which kinds of processes may call which methods. The operator may call all; what is not named here nobody else may.

A test goes through the descriptors of all services: each method has its line.
"""

from headway.rpc.credentials import OPERATOR

_CALLERS: dict[str, dict[str, tuple[str, ...]]] = {
    "WorkerService": {
        "GetWorker": ("controller", "cell", "profiler"),
        "LoadModel": ("controller",),
        "UnloadModel": ("controller",),
        "GenerateTokens": ("gateway",),
        "InferSequences": ("gateway",),
        "WatchLoad": ("router", "kvcache", "profiler"),
        "WatchBlocks": ("kvcache",),
        "MeasureStep": ("profiler",),
        "MeasurePrograms": ("profiler",),
        "MeasureHardware": ("profiler",),
        "GetBlocks": ("kvcache",),
        "GetBlockTables": ("kvcache",),
        "SetPins": ("kvcache",),
        "ReadBlocks": ("worker",),
        "FetchBlocks": ("worker",),
        "MoveSequences": ("kvcache",),
        "GetSharding": ("kvcache",),
        "SetSharding": ("kvcache",),
        "Drain": ("controller", "cell"),
    },
    "CellService": {"EndRun": ("controller",)},
    "RouterService": {"Dispatch": ("gateway",), "GetFleet": ("gateway", "controller")},
    "KvCacheService": {
        "LookupPrefix": ("router",),
        **dict.fromkeys(("GetCapacity", "GetUsage", "DescribeRequest", "MoveRequest"), ()),
        **dict.fromkeys(("PinPrefix", "UnpinPrefix", "ListPrefixes"), ()),
    },
    "PlannerService": {
        **dict.fromkeys(("MakePlan", "CertifyPlan", "SeatPlacement", "PlanPlacement", "TryPlacement"), ("controller",)),
        **dict.fromkeys(
            ("ExplainPlan", "EstimateStages", "EstimateGeneration", "CertifyPlacement", "FindFrontier"), ()
        ),
        **dict.fromkeys(("StartSearch", "GetSearch", "WatchSearch", "StopSearch", "ListSearches"), ()),
    },
    "ProfilerService": {
        **dict.fromkeys(("ProfileModel", "ImportProfiles"), ("controller",)),
        **dict.fromkeys(("GetProfile", "ListProfiles", "ListImported", "GetImported", "ExportProfiles"), ()),
        **dict.fromkeys(("CaptureModel", "StartMeasuring", "WatchMeasuring", "CancelMeasuring", "ListMeasuring"), ()),
        **dict.fromkeys(("GetModelProfile", "ListModelProfiles", "ProfileHardware", "ListHardware", "GetHardware"), ()),
        "ForgetProfiles": (),
    },
    "ControllerService": {
        **dict.fromkeys(("GetStatus", "WakeModel"), ("gateway",)),
        **dict.fromkeys(("ApplyPlan", "ProposePlacement", "GetPlacement", "GetPlan"), ()),
        **dict.fromkeys(("Replace", "SetReplacement", "GetReplacement"), ()),
        **dict.fromkeys(("CreateApiKey", "ListApiKeys", "RevokeApiKey", "Shutdown"), ()),
    },
}

CALLERS = {
    f"/headway.v1.{service}/{method}": frozenset(callers)
    for service, methods in _CALLERS.items()
    for method, callers in methods.items()
}
"""Roles that may call a method, besides the operator, by the method's full name."""


def may_call(role: str, method: str) -> bool:
    return role == OPERATOR or role in CALLERS.get(method, ())
