"""The worker processes of a cell."""

import pytest
from pydantic import ValidationError

from headway.controller.cell.config import CellConfig
from headway.controller.cell.specs import worker_specs
from headway.controller.machine import MachineResources
from headway.controller.process import ProcessSpec
from headway.core.engine_kind import EngineKind
from headway.core.errors import FailedPreconditionError, InvalidArgumentError, NotFoundError

MACHINE = MachineResources(num_cores=8, cores=tuple(range(8)), available_bytes=100, gpus=("3", "GPU-1"))


def flags(spec: ProcessSpec) -> dict[str, str]:
    return dict(zip(spec.command[3::2], spec.command[4::2], strict=True))


def test_each_worker_has_a_gpu_a_name_and_ports_of_its_own() -> None:
    config = CellConfig(device="cuda", workers=2, first_worker_port=9100, first_worker_metrics_port=9200, pool="a")
    specs = worker_specs(config, cell_id="h-worker-a-0", machine=MACHINE)
    assert [spec.name for spec in specs] == ["h-worker-a-0-0", "h-worker-a-0-1"]
    assert [spec.environment["CUDA_VISIBLE_DEVICES"] for spec in specs] == ["3", "GPU-1"]
    assert {flags(spec)["--pool"] for spec in specs} == {"a"}
    assert [flags(spec)["--member-id"] for spec in specs] == [spec.name for spec in specs]
    assert [(flags(spec)["--port"], flags(spec)["--metrics-port"]) for spec in specs] == [
        ("9100", "9200"),
        ("9101", "9201"),
    ]


def test_on_the_cpu_they_share_cores_and_memory() -> None:
    specs = worker_specs(CellConfig(workers=2), cell_id="c", machine=MACHINE)
    assert [flags(spec)["--num-threads"] for spec in specs] == ["4", "4"]
    assert [flags(spec)["--memory-bytes"] for spec in specs] == ["40", "40"]
    assert [spec.cores for spec in specs] == [(0, 1, 2, 3), (4, 5, 6, 7)]
    assert all("--port" not in flags(spec) for spec in specs), "any port, where none is given"


def test_emulated_ones_take_the_devices_memory() -> None:
    [spec] = worker_specs(CellConfig(emulate="V100-16"), cell_id="c", machine=MACHINE)
    assert flags(spec)["--emulate"] == "V100-16"
    assert int(flags(spec)["--memory-bytes"]) == 16 * 10**9


def test_more_workers_than_gpus_are_refused() -> None:
    with pytest.raises(FailedPreconditionError, match="needs a GPU of its own"):
        worker_specs(CellConfig(device="cuda", workers=3), cell_id="c", machine=MACHINE)


def test_one_stands_in_for_a_server() -> None:
    config = CellConfig(
        engine=EngineKind.VLLM_SERVER,
        engine_url="http://localhost:8000",
        engine_model="chat",
        engine_events="tcp://localhost:5557",
    )
    [spec] = worker_specs(config, cell_id="c", machine=MACHINE)
    found = flags(spec)
    assert (found["--engine"], found["--engine-url"]) == ("vllm-server", "http://localhost:8000")
    assert (found["--engine-model"], found["--engine-events"]) == ("chat", "tcp://localhost:5557")
    with pytest.raises(InvalidArgumentError, match="needs engine_url and engine_model"):
        worker_specs(CellConfig(engine=EngineKind.VLLM_SERVER), cell_id="c", machine=MACHINE)


def test_a_worker_with_vllm_may_have_several_devices() -> None:
    config = CellConfig(workers=2, engine=EngineKind.VLLM, num_devices=2)
    specs = worker_specs(config, cell_id="c", machine=MACHINE)
    assert [flags(spec)["--num-devices"] for spec in specs] == ["2", "2"]
    assert [flags(spec)["--num-threads"] for spec in specs] == ["2", "2"]
    with pytest.raises(InvalidArgumentError, match="num_devices is 2, and a worker with headway has one"):
        worker_specs(CellConfig(num_devices=2), cell_id="c", machine=MACHINE)


def test_an_unknown_device_is_refused() -> None:
    with pytest.raises(NotFoundError, match="V1000"):
        worker_specs(CellConfig(emulate="V1000"), cell_id="c", machine=MACHINE)


def test_a_cell_has_a_worker() -> None:
    with pytest.raises(ValidationError, match="workers"):
        CellConfig(workers=0)
