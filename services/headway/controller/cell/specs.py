"""The worker processes of a cell."""

import sys

from headway.controller.cell.config import CellConfig
from headway.controller.machine import MachineResources
from headway.controller.process import ProcessSpec
from headway.controller.stack import ChildSettings, resolve_workers, worker_spec
from headway.core.catalogue import read_catalogue
from headway.core.catalogue.catalogue import Catalogue
from headway.core.deployment import EmulatedDevices, WorkerOptions
from headway.core.engine_kind import EngineKind
from headway.core.engine_server import EngineServer
from headway.core.errors import InvalidArgumentError
from headway.core.line import QueuePolicy


def worker_specs(config: CellConfig, *, cell_id: str, machine: MachineResources) -> tuple[ProcessSpec, ...]:
    """The workers `cell_id`-0, -1, ..., each with a GPU or a share of the cores of its own.

    Raises:
        FailedPreconditionError: there are fewer GPUs than workers.
        NotFoundError: the catalogue has no device to emulate of that name.
        InvalidArgumentError: it does not say how much memory that has, or nobody which server the worker is for; or
            workers that have one device each are to have several.
    """
    emulated = _emulated(config, read_catalogue(config.catalogue)) if config.emulate else ()
    workers = resolve_workers(
        WorkerOptions(
            count=config.workers,
            device="cuda" if emulated else config.device,
            num_threads=1 if emulated else config.num_threads,
            memory_bytes=emulated[0].memory_bytes if emulated else config.memory_bytes,
            emulated=emulated,
            num_vllm=config.workers if config.engine is EngineKind.VLLM else 0,
            vllm_python=sys.executable,
            vllm_devices=_num_devices(config),
            servers=_servers(config),
        ),
        machine=machine,
    )
    settings = ChildSettings.of(config)
    return tuple(
        worker_spec(
            f"{cell_id}-{index}",
            index,
            workers,
            settings=settings,
            log_level=config.log_level,
            otlp_endpoint=config.otlp_endpoint,
            queue_policy=QueuePolicy(config.queue_policy),
            port=_port(config.first_worker_port, index),
            metrics_port=_port(config.first_worker_metrics_port, index),
            pool=config.pool,
        )
        for index in range(config.workers)
    )


def _num_devices(config: CellConfig) -> int:
    if config.num_devices > 1 and config.engine is not EngineKind.VLLM:
        raise InvalidArgumentError(
            f"num_devices is {config.num_devices}, and a worker with {config.engine} has one.",
            hint="Leave it out: a worker is started for each device.",
            field="num_devices",
        )
    return config.num_devices


def _servers(config: CellConfig) -> tuple[EngineServer, ...]:
    if config.engine is not EngineKind.VLLM_SERVER:
        return ()
    if not config.engine_url or not config.engine_model or config.workers > 1:
        raise InvalidArgumentError(
            f"The engine {config.engine} needs engine_url and engine_model, and one worker.",
            hint="A cell stands in for one server.",
            field="engine_url",
        )
    return (EngineServer(model=config.engine_model, url=config.engine_url, events=config.engine_events),)


def _emulated(config: CellConfig, catalogue: Catalogue) -> tuple[EmulatedDevices, ...]:
    device = catalogue.device(config.emulate)
    memory_bytes = config.memory_bytes or (int(device.memory.value) if device.memory else 0)
    if not memory_bytes:
        raise InvalidArgumentError(
            f"The catalogue does not say how much memory a {device.name} has.",
            hint="Say how much with memory_bytes.",
            field="memory_bytes",
        )
    return (EmulatedDevices(count=config.workers, name=device.name, memory_bytes=memory_bytes),)


def _port(first: int, index: int) -> int | None:
    return first + index if first else None
