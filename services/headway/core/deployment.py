"""A deployment: the models, workers and process options that a user asks `headway up` for."""

from dataclasses import dataclass, field, replace

from headway.core.api_key import hashed_key
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import EngineServer
from headway.core.line import QueuePolicy
from headway.core.plan.serving import EngineLimits, ModelDeployment


@dataclass(frozen=True, slots=True, kw_only=True)
class GatewayOptions:
    """The options of the gateway: where and how clients are answered.

    Attributes:
        host, port: the HTTP address; port 0 takes a free one.
        grpc_port: the port of the gRPC inference service; 0 takes a free one.
        api_keys: accepted bearer tokens, as they are or as `sha256:HEX`; empty accepts every client.
        tenants: a YAML file of tenants and their objectives; empty for none.
        strict_fields: whether requests with fields that have no effect are refused.
        max_body_bytes: the largest HTTP body; larger ones are refused with 413.
        max_concurrency: the most requests answered at once by each; more are refused with 429.
        count: gateways that share the address: where one dies, the others answer.
    """

    host: str = "127.0.0.1"
    port: int = 8000
    grpc_port: int = 0
    api_keys: tuple[str, ...] = ()
    tenants: str = ""
    strict_fields: bool = False
    max_body_bytes: int = 8 * 1024 * 1024
    max_concurrency: int = 1024
    count: int = 1

    @property
    def to_keep(self) -> "GatewayOptions":
        """The same with hashed keys: whoever reads them where they are kept cannot use them."""
        return replace(self, api_keys=tuple(map(hashed_key, self.api_keys)))


@dataclass(frozen=True, slots=True, kw_only=True)
class EmulatedDevices:
    """A number of emulated devices of one kind, by its name in the catalogue; `memory_bytes` of each may be used."""

    count: int
    name: str
    memory_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerOptions:
    """The options of worker processes.

    Attributes:
        count: the number of worker processes.
        device: 'cpu' or 'cuda'.
        num_threads: compute threads of each; 0 shares the machine's cores evenly.
        memory_bytes: the memory that each may use; 0 shares the machine's available memory.
        cores: the cores that each worker is bound to, by worker; () for none: they run where there is room. None
            gives each its share where there are several that compute on the CPU, and cores enough for their threads.
        gpus: the GPU of each worker, as `CUDA_VISIBLE_DEVICES` names it; () for none.
        num_vllm: how many of the workers, the last ones that compute, do so with vLLM.
        vllm_python: the interpreter that has it; empty for none.
        vllm_devices: of each of these, over which vLLM splits each layer; threads and memory are those of one.
        servers: of other engines that workers stand in for, the last ones, one each; they compute nothing.
        emulated: devices that the workers take the time of, one after the other, computing nothing; () to compute.
    """

    count: int = 1
    device: str = "cpu"
    num_threads: int = 0
    memory_bytes: int = 0
    cores: tuple[tuple[int, ...], ...] | None = None
    gpus: tuple[str, ...] = ()
    emulated: tuple[EmulatedDevices, ...] = ()
    num_vllm: int = 0
    vllm_python: str = ""
    vllm_devices: int = 1
    servers: tuple[EngineServer, ...] = ()

    @property
    def num_computing(self) -> int:
        """Workers that share the machine's cores and memory."""
        return self.count - len(self.servers)

    @property
    def num_devices(self) -> int:
        """Of all those."""
        return self.num_computing + self.num_vllm * (self.vllm_devices - 1)

    def devices_of(self, index: int) -> range:
        """The numbers of a computing worker's devices among all."""
        first = index + max(0, index - (self.num_computing - self.num_vllm)) * (self.vllm_devices - 1)
        return range(first, first + (self.vllm_devices if self.engine_of(index) is EngineKind.VLLM else 1))

    def server_of(self, index: int) -> EngineServer | None:
        """What a worker stands in for; None where it computes."""
        return self.servers[index - self.num_computing] if index >= self.num_computing else None

    def engine_of(self, index: int) -> EngineKind:
        """What a worker computes with."""
        if index >= self.num_computing:
            return EngineKind.VLLM_SERVER
        return EngineKind.VLLM if index >= self.num_computing - self.num_vllm else EngineKind.HEADWAY

    def emulated_by(self, index: int) -> EmulatedDevices | None:
        """The kind of device of a worker; None for a real one."""
        for devices in self.emulated:
            if index < devices.count:
                return devices
            index -= devices.count
        return None


@dataclass(frozen=True, slots=True, kw_only=True)
class Deployment:
    """The desired stack. The controller makes processes match it, the planner makes the plan for it.

    Attributes:
        profile: whether models are profiled once they serve (predictions stay estimates otherwise).
        otlp_endpoint: OpenTelemetry collector; None turns tracing off.
        queue_policy: who is next of the requests that wait: 'least-slack', 'fcfs' or 'priority'.
        traffic_retention_s: how long the record of arrivals is kept; None for the router's default.
        answer_overhead_s: that an answer takes from the client to the group and back, besides the model.
        stage_profiles: a file to import before the plan is made, of the emulated device; empty for none.
        placement_id: of the placement that was applied since; empty while the planner chooses who serves what.
        is_emulated: whether workers that others start compute nothing: models need no weights then.
        source: the fingerprint of the file that it was read from; empty where it is `headway up`'s.
    """

    models: tuple[ModelDeployment, ...]
    workers: WorkerOptions = field(default_factory=WorkerOptions)
    gateway: GatewayOptions = field(default_factory=GatewayOptions)
    limits: EngineLimits = field(default_factory=EngineLimits)
    profile: bool = True
    log_level: str = "info"
    otlp_endpoint: str | None = None
    stage_profiles: str = ""
    queue_policy: QueuePolicy = QueuePolicy.LEAST_SLACK
    traffic_retention_s: float | None = None
    answer_overhead_s: float = 0.0
    placement_id: str = ""
    is_emulated: bool = False
    source: str = ""
