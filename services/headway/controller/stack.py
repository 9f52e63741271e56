"""Lists the processes that a deployment needs. Pure."""

import json
import sys
from dataclasses import dataclass, replace
from typing import Self

from headway.controller.machine import VISIBLE_GPUS, MachineResources
from headway.controller.process import ProcessSpec, module_command
from headway.core.deployment import Deployment, WorkerOptions
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError
from headway.core.line import QueuePolicy
from headway.core.tls_files import TlsFiles
from headway.rpc.config import ProcessConfig
from headway.rpc.credentials import role_token, token_hashes

SERVICE_KINDS = ("router", "planner", "kvcache", "profiler")

# Gateway, router and workers share the processor. The scheduler lets a process that wakes up preempt one of lower
# priority at once, so with this the few microseconds that a token takes through the gateway never wait for a matrix
# product, while workers still get all the time that nobody else wants.
_OPENMP_SPINS = "1000"
_WORKER_NICENESS = 1
_SERVICE_RUNTIME = {"OMP_NUM_THREADS": "1"}
_EMULATED_RUNTIME = {"OMP_NUM_THREADS": "1", "MALLOC_ARENA_MAX": "1"}  # many of them on one machine
_MEMORY_SHARE = 0.8
_ALL_OF_THE_GPU_BYTES = 2**50


@dataclass(frozen=True, slots=True, kw_only=True)
class ChildSettings:
    """The settings that processes of the stack get. The first two may hold secrets, so they travel in the
    environment, and so does the third.

    Attributes:
        auth_token: the stack's own.
        tls: the files of certificates; None where calls are not encrypted.
    """

    redis_url: str
    auth_token: str | None
    tls: TlsFiles | None = None
    namespace: str
    bind_host: str
    advertise_host: str

    @classmethod
    def of(cls, config: ProcessConfig) -> Self:
        """The settings of the process that starts the others."""
        return cls(
            redis_url=config.redis_url,
            auth_token=config.auth_token,
            tls=config.tls,
            namespace=config.namespace,
            bind_host=config.bind_host,
            advertise_host=config.advertise_host,
        )

    def environment(self, role: str) -> dict[str, str]:
        """Ports of the controller's own, which a child would inherit, are set back to 'any'. Of the stack's token it
        gets what its role needs."""
        variables = {"HEADWAY_REDIS_URL": self.redis_url, "HEADWAY_PORT": "0", "HEADWAY_METRICS_PORT": "0"}
        if self.tls is not None:
            variables |= self.tls.environment
        if self.auth_token is None:
            return variables
        return variables | {
            "HEADWAY_AUTH_TOKEN": role_token(self.auth_token, role),
            "HEADWAY_AUTH_HASHES": json.dumps(token_hashes(self.auth_token)),
        }


def resolve_workers(options: WorkerOptions, *, machine: MachineResources) -> WorkerOptions:
    """Options with nothing left open: what is 0 becomes an even share of the machine, and each worker has its own GPUs.

    Raises:
        FailedPreconditionError: the workers need more GPUs than there are.
    """
    memory_bytes = options.memory_bytes
    if memory_bytes == 0 and options.device == "cpu":
        memory_bytes = int(_MEMORY_SHARE * machine.available_bytes) // max(1, options.num_devices)
    num_threads = options.num_threads or max(1, machine.num_cores // max(1, options.num_devices))
    return replace(
        options,
        num_threads=num_threads,
        memory_bytes=memory_bytes or _ALL_OF_THE_GPU_BYTES,
        cores=_shares(options, num_threads, machine) if options.cores is None else options.cores,
        gpus=options.gpus or _gpus(options, machine),
    )


def _gpus(options: WorkerOptions, machine: MachineResources) -> tuple[str, ...]:
    if options.device != "cuda" or options.emulated:
        return ()
    gpus = machine.gpus
    if gpus is None:
        gpus = tuple(str(index) for index in range(options.num_devices))
    if options.num_devices > len(gpus) and options.vllm_devices > 1:
        raise FailedPreconditionError(
            f"{options.num_computing} workers need {options.num_devices} GPUs with --tp {options.vllm_devices}, and "
            f"this machine has {len(gpus)}.",
            hint=f"Take fewer workers or a smaller --tp, or name more GPUs in {VISIBLE_GPUS}.",
            field="workers",
        )
    if options.num_computing > len(gpus):
        names = f" ({', '.join(gpus)})" if gpus else ""
        raise FailedPreconditionError(
            f"Each of {options.num_computing} workers needs a GPU of its own, and this machine has {len(gpus)}{names}.",
            hint=f"Take --workers {len(gpus)}, or name more GPUs in {VISIBLE_GPUS}."
            if gpus
            else f"Take --device cpu, or name GPUs in {VISIBLE_GPUS}.",
            field="workers",
        )
    devices = (options.devices_of(index) for index in range(options.num_computing))
    return tuple(",".join(gpus[device] for device in of_worker) for of_worker in devices)


def _shares(options: WorkerOptions, num_threads: int, machine: MachineResources) -> tuple[tuple[int, ...], ...]:
    """Cores of each worker's own, as many for each device; none where they are too few, or not the machine's alone."""
    if options.device != "cpu" or options.emulated or options.num_computing < 2:
        return ()
    if options.num_devices * num_threads > machine.num_cores or machine.num_cores < len(machine.cores):
        return ()
    share = len(machine.cores) // options.num_devices
    devices = map(options.devices_of, range(options.num_computing))
    return tuple(machine.cores[each.start * share : each.stop * share] for each in devices)


def wanted_processes(deployment: Deployment, *, settings: ChildSettings) -> tuple[ProcessSpec, ...]:
    """Workers first: they take longest to start. The deployment's worker options are resolved."""
    return (
        *(_worker(index, deployment, settings) for index in range(deployment.workers.count)),
        *(_gateway(name, deployment, settings) for name in _gateway_names(deployment.gateway.count)),
        *(_service(kind, deployment, settings) for kind in SERVICE_KINDS),
    )


def _worker(index: int, deployment: Deployment, settings: ChildSettings) -> ProcessSpec:
    return worker_spec(
        f"worker-{index}",
        index,
        deployment.workers,
        settings=settings,
        log_level=deployment.log_level,
        otlp_endpoint=deployment.otlp_endpoint,
        queue_policy=deployment.queue_policy,
    )


def worker_spec(
    name: str,
    index: int,
    workers: WorkerOptions,
    *,
    settings: ChildSettings,
    log_level: str,
    otlp_endpoint: str | None,
    queue_policy: QueuePolicy,
    port: int | None = None,
    metrics_port: int | None = None,
    pool: str = "",
) -> ProcessSpec:
    """The process of a worker.

    Args:
        index: of the worker among those of `workers`, which are resolved.
        port, metrics_port: that it listens on; None for any.
        pool: that it is of; empty for none.
    """
    emulated = workers.emulated_by(index)
    gpu = {VISIBLE_GPUS: workers.gpus[index]} if index < len(workers.gpus) else {}
    engine = workers.engine_of(index)
    server = workers.server_of(index)
    is_own = engine is EngineKind.HEADWAY
    return ProcessSpec(
        name=name,
        kind="worker",
        command=module_command(
            "worker",
            workers.vllm_python if engine is EngineKind.VLLM else sys.executable,
            **_common_flags(name, settings, log_level=log_level, otlp_endpoint=otlp_endpoint),
            port=port,
            metrics_port=metrics_port,
            device=workers.device,
            num_threads=workers.num_threads,
            memory_bytes=workers.memory_bytes if emulated is None else emulated.memory_bytes,
            num_devices=workers.vllm_devices if engine is EngineKind.VLLM and workers.vllm_devices > 1 else None,
            engine=None if is_own else engine,
            engine_url=None if server is None else server.url,
            engine_model=None if server is None else server.model,
            engine_events=None if server is None else server.events or None,
            emulate=None if emulated is None else emulated.name,
            group_id=name.replace("worker", "group"),
            pool=pool or None,
            queue_policy=queue_policy,
        ),
        environment=settings.environment("worker") | gpu,
        runtime=_EMULATED_RUNTIME if emulated else _openmp(workers),
        # Another interpreter's modules cannot be had from a process of ours.
        preload=("headway.worker.__main__", f"headway.worker.{'emulated' if emulated else 'computed'}_loading")
        if is_own
        else (),
        niceness=0 if emulated else _WORKER_NICENESS,  # it computes nothing, and must wake up in time
        cores=workers.cores[index] if workers.cores and index < len(workers.cores) else (),
    )


def _openmp(workers: WorkerOptions) -> dict[str, str]:
    """PyTorch's threads wait for each other by spinning for a short while, then sleep.

    The default spins for milliseconds, which keeps gateway and router, and the threads of the worker's own kernels,
    from the cores. No thread is bound to one: the kernels' threads would inherit that. Of several workers each has
    cores of its own.
    """
    variables = {"OMP_NUM_THREADS": str(workers.num_threads), "OPENBLAS_NUM_THREADS": "1"}
    if workers.num_threads > 1:
        variables["GOMP_SPINCOUNT"] = _OPENMP_SPINS
    return variables


def _gateway_names(count: int) -> tuple[str, ...]:
    return ("gateway",) if count == 1 else tuple(f"gateway-{index}" for index in range(count))


def _gateway(name: str, deployment: Deployment, settings: ChildSettings) -> ProcessSpec:
    """Clients come to its host; the other processes know it by the address that the others have too."""
    gateway = deployment.gateway
    flags = _flags(name, deployment, settings) | {
        "bind_host": gateway.host,
        "advertise_host": settings.advertise_host or settings.bind_host,
        "port": gateway.grpc_port,
        "http_host": gateway.host,
        "http_port": gateway.port,
        "shares_port": True if gateway.count > 1 else None,
        "max_body_bytes": gateway.max_body_bytes,
        "max_concurrency": gateway.max_concurrency,
        "tenants": gateway.tenants or None,
        "strict_fields": gateway.strict_fields or None,
        "answer_overhead_s": deployment.answer_overhead_s,
    }
    return ProcessSpec(
        name=name,
        kind="gateway",
        command=module_command("gateway", **flags),
        environment=settings.environment("gateway") | {"HEADWAY_API_KEYS": json.dumps(gateway.api_keys)},
        runtime=_SERVICE_RUNTIME,
        preload=("headway.gateway.__main__",),
    )


def _service(kind: str, deployment: Deployment, settings: ChildSettings) -> ProcessSpec:
    flags = _flags(kind, deployment, settings)
    if kind == "router":
        flags |= {
            "queue_policy": deployment.queue_policy,
            "traffic_retention_s": deployment.traffic_retention_s,
            "answer_overhead_s": deployment.answer_overhead_s,
        }
    return ProcessSpec(
        name=kind,
        kind=kind,
        command=module_command(kind, **flags),
        environment=settings.environment(kind),
        runtime=_SERVICE_RUNTIME,
        preload=(f"headway.{kind}.__main__",),
    )


def _flags(name: str, deployment: Deployment, settings: ChildSettings) -> dict[str, object]:
    return _common_flags(name, settings, log_level=deployment.log_level, otlp_endpoint=deployment.otlp_endpoint)


def _common_flags(
    name: str, settings: ChildSettings, *, log_level: str, otlp_endpoint: str | None
) -> dict[str, object]:
    return {
        "namespace": settings.namespace,
        "member_id": name,
        "bind_host": settings.bind_host,
        "advertise_host": settings.advertise_host or None,
        "log_level": log_level,
        "otlp_endpoint": otlp_endpoint,
    }
