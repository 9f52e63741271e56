"""The processes of a deployment."""

import os
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from headway.controller.machine import MachineResources, find_gpus, read_machine
from headway.controller.stack import SERVICE_KINDS, ChildSettings, resolve_workers, wanted_processes
from headway.core.deployment import Deployment, EmulatedDevices, GatewayOptions, WorkerOptions
from headway.core.errors import FailedPreconditionError
from headway.core.line import QueuePolicy
from headway.rpc.credentials import role_token

MACHINE = MachineResources(num_cores=8, cores=(0, 4, 1, 5, 2, 6, 3, 7), available_bytes=10_000)
"""Four cores of two hardware threads each."""
SETTINGS = ChildSettings(
    redis_url="redis://:hunter2@host:1/0", auth_token="sesame", namespace="ns", bind_host="127.0.0.1", advertise_host=""
)


def make_deployment(make_model: Any, **changes: Any) -> Deployment:
    usual = {"models": (make_model("llama"),), "workers": WorkerOptions(count=2, num_threads=3, memory_bytes=77)}
    return Deployment(**(usual | changes))


def test_there_is_one_process_for_each_service_and_worker(make_model: Any) -> None:
    specs = wanted_processes(make_deployment(make_model), settings=SETTINGS)
    assert [spec.name for spec in specs] == ["worker-0", "worker-1", "gateway", *SERVICE_KINDS]
    assert {spec.kind for spec in specs} == {"worker", "gateway", *SERVICE_KINDS}


def test_a_worker_is_told_its_share_and_stands_back_for_services(make_model: Any) -> None:
    worker, *_, service = wanted_processes(make_deployment(make_model), settings=SETTINGS)
    command = " ".join(worker.command)
    assert "-m headway.worker --namespace ns --member-id worker-0" in command
    assert "--device cpu --num-threads 3 --memory-bytes 77 --group-id group-0" in command
    assert worker.runtime["OMP_NUM_THREADS"] == "3"
    assert service.runtime["OMP_NUM_THREADS"] == "1"
    assert worker.niceness > service.niceness == 0


def test_policies_tenants_and_retention_reach_those_who_go_by_them(make_model: Any) -> None:
    deployment = make_deployment(
        make_model,
        queue_policy=QueuePolicy.LEAST_SLACK,
        gateway=GatewayOptions(tenants="/etc/tenants.yaml"),
        traffic_retention_s=60.0,
        answer_overhead_s=0.004,
    )
    commands = {spec.name: " ".join(spec.command) for spec in wanted_processes(deployment, settings=SETTINGS)}
    told = {name for name, command in commands.items() if "--queue-policy least-slack" in command}
    assert told == {"worker-0", "worker-1", "router"}
    assert "--tenants /etc/tenants.yaml" in commands["gateway"]
    assert "--traffic-retention-s 60.0" in commands["router"]
    told = {name for name, command in commands.items() if "--answer-overhead-s 0.004" in command}
    assert told == {"router", "gateway"}


def test_no_secret_stands_on_a_command_line(make_model: Any) -> None:
    deployment = make_deployment(make_model, gateway=GatewayOptions(api_keys=("swordfish",)))
    for spec in wanted_processes(deployment, settings=SETTINGS):
        command = " ".join(spec.command)
        assert not any(secret in command for secret in ("hunter2", "sesame", "swordfish"))
        assert spec.environment["HEADWAY_REDIS_URL"] == SETTINGS.redis_url
        assert spec.environment["HEADWAY_AUTH_TOKEN"] == role_token("sesame", spec.kind)
        assert "sesame" not in " ".join(spec.environment.values()), "that of its own role is all that it has"


def test_the_gateway_answers_where_the_user_said(make_model: Any) -> None:
    options = GatewayOptions(host="0.0.0.0", port=8080, grpc_port=9090, api_keys=("swordfish",), max_concurrency=7)
    specs = wanted_processes(make_deployment(make_model, gateway=options), settings=SETTINGS)
    gateway = next(spec for spec in specs if spec.name == "gateway")
    command = " ".join(gateway.command)
    assert "--http-host 0.0.0.0 --http-port 8080" in command
    assert "--bind-host 0.0.0.0 --advertise-host 127.0.0.1" in command
    assert "--port 9090" in command
    assert "--max-concurrency 7" in command
    assert gateway.environment["HEADWAY_API_KEYS"] == '["swordfish"]'


def test_two_gateways_share_an_address(make_model: Any) -> None:
    options = GatewayOptions(port=8080, grpc_port=9090, count=2)
    specs = wanted_processes(make_deployment(make_model, gateway=options), settings=SETTINGS)
    gateways = [spec for spec in specs if spec.kind == "gateway"]
    assert [gateway.name for gateway in gateways] == ["gateway-0", "gateway-1"]
    for gateway in gateways:
        command = " ".join(gateway.command)
        assert f"--member-id {gateway.name}" in command
        assert "--http-port 8080 --shares-port" in command


def test_a_new_secret_means_a_new_process(make_model: Any) -> None:
    specs = wanted_processes(make_deployment(make_model), settings=SETTINGS)
    others = wanted_processes(make_deployment(make_model), settings=replace(SETTINGS, auth_token="mellon"))
    assert all(spec.command == other.command for spec, other in zip(specs, others, strict=True))
    assert all(spec.fingerprint != other.fingerprint for spec, other in zip(specs, others, strict=True))


def test_options_reach_every_process(make_model: Any) -> None:
    deployment = make_deployment(make_model, log_level="debug", otlp_endpoint="http://127.0.0.1:4317")
    settings = replace(SETTINGS, advertise_host="10.0.0.1")
    for spec in wanted_processes(deployment, settings=settings):
        command = " ".join(spec.command)
        assert "--log-level debug" in command
        assert "--otlp-endpoint http://127.0.0.1:4317" in command
        assert "--advertise-host 10.0.0.1" in command


def test_open_options_become_even_shares_of_the_machine() -> None:
    resolved = resolve_workers(WorkerOptions(count=2), machine=MACHINE)
    assert (resolved.num_threads, resolved.memory_bytes) == (4, 4000)
    assert resolve_workers(WorkerOptions(count=20), machine=MACHINE).num_threads == 1


def test_what_the_user_set_stays() -> None:
    options = WorkerOptions(count=2, num_threads=7, memory_bytes=5, cores=())
    assert resolve_workers(options, machine=MACHINE) == options


def test_a_resolved_deployment_stays_as_it_is() -> None:
    resolved = resolve_workers(WorkerOptions(count=3), machine=MACHINE)
    assert resolve_workers(resolved, machine=MachineResources(num_cores=1, cores=(0,), available_bytes=1)) == resolved


def test_each_of_several_workers_has_cores_of_its_own(make_model: Any) -> None:
    workers = resolve_workers(WorkerOptions(count=3, num_threads=2), machine=MACHINE)
    assert workers.cores == ((0, 4), (1, 5), (2, 6))
    specs = wanted_processes(make_deployment(make_model, workers=workers), settings=SETTINGS)
    assert [spec.cores for spec in specs[:4]] == [(0, 4), (1, 5), (2, 6), ()]
    assert "OMP_PROC_BIND" not in specs[0].runtime, "its places would be those of the process that it is forked from"


def test_a_worker_with_vllm_has_several_devices(make_model: Any) -> None:
    options = WorkerOptions(count=3, num_vllm=2, vllm_python="/vllm/python", vllm_devices=2)
    workers = resolve_workers(options, machine=MACHINE)
    assert (workers.num_threads, workers.memory_bytes) == (1, 8_000 // 5)
    assert workers.cores == ((0,), (4, 1), (5, 2))
    own, *others = wanted_processes(make_deployment(make_model, workers=workers), settings=SETTINGS)[:3]
    assert "--num-devices" not in own.command
    assert ["--num-devices 2 --engine vllm" in " ".join(other.command) for other in others] == [True, True]
    gpus = resolve_workers(replace(options, device="cuda"), machine=replace(MACHINE, gpus=tuple("abcde"))).gpus
    assert gpus == ("a", "b,c", "d,e")
    with pytest.raises(FailedPreconditionError, match="3 workers need 5 GPUs with --tp 2, and this machine has 4"):
        resolve_workers(replace(options, device="cuda"), machine=replace(MACHINE, gpus=tuple("abcd")))


@pytest.mark.parametrize(
    "workers",
    [
        WorkerOptions(count=3, num_threads=3),
        WorkerOptions(count=1, num_threads=4),
        WorkerOptions(count=9),
        WorkerOptions(count=2, device="cuda"),
        WorkerOptions(count=2, emulated=(EmulatedDevices(count=2, name="V100", memory_bytes=1),)),
        WorkerOptions(count=2, cores=()),
    ],
)
def test_who_has_too_few_cores_is_alone_or_does_not_compute_is_not_bound(workers: WorkerOptions) -> None:
    assert resolve_workers(workers, machine=MACHINE).cores == ()


def test_cores_whose_time_a_quota_limits_are_not_ours_alone() -> None:
    machine = MachineResources(num_cores=2, cores=MACHINE.cores, available_bytes=1)
    assert resolve_workers(WorkerOptions(count=2), machine=machine).cores == ()


def test_the_machine_has_cores_and_memory() -> None:
    machine = read_machine()
    assert machine.num_cores >= 1
    assert set(machine.cores) == os.sched_getaffinity(0)
    assert machine.available_bytes > 2**20


def test_each_of_several_workers_has_a_gpu_of_its_own(make_model: Any) -> None:
    workers = resolve_workers(
        WorkerOptions(count=2, device="cuda"), machine=replace(MACHINE, gpus=("2", "GPU-7f", "5"))
    )
    assert workers.gpus == ("2", "GPU-7f")
    specs = wanted_processes(make_deployment(make_model, workers=workers), settings=SETTINGS)
    assert [spec.environment.get("CUDA_VISIBLE_DEVICES") for spec in specs[:3]] == ["2", "GPU-7f", None]
    assert len({spec.fingerprint for spec in specs[:2]}) == 2
    assert specs[0].runtime == specs[1].runtime, "they are forked from one process"


def test_where_only_cuda_could_tell_gpus_are_taken_in_their_order() -> None:
    assert resolve_workers(WorkerOptions(count=3, device="cuda"), machine=MACHINE).gpus == ("0", "1", "2")


@pytest.mark.parametrize(("gpus", "hint"), [(("4", "6"), r"has 2 \(4, 6\).*--workers 2"), ((), "has 0.*--device cpu")])
def test_more_workers_than_gpus_are_refused(gpus: tuple[str, ...], hint: str) -> None:
    with pytest.raises(FailedPreconditionError, match=hint):
        resolve_workers(WorkerOptions(count=3, device="cuda"), machine=replace(MACHINE, gpus=gpus))


def test_workers_that_compute_on_the_cpu_or_not_at_all_need_no_gpu() -> None:
    machine = replace(MACHINE, gpus=())
    emulated = WorkerOptions(count=2, device="cuda", emulated=(EmulatedDevices(count=2, name="V100", memory_bytes=1),))
    assert resolve_workers(emulated, machine=machine).gpus == ()
    assert resolve_workers(WorkerOptions(count=2), machine=machine).gpus == ()


@pytest.mark.parametrize(
    ("visible", "gpus"),
    [(None, ("0", "1")), ("3,1", ("3", "1")), (" GPU-a , GPU-b", ("GPU-a", "GPU-b")), ("", ()), ("0,-1,1", ("0",))],
)
def test_gpus_are_those_that_cuda_may_see(tmp_path: Path, visible: str | None, gpus: tuple[str, ...]) -> None:
    for name in ("0000:17:00.0", "0000:65:00.0"):
        (tmp_path / name).mkdir()
    assert find_gpus(visible, driver=tmp_path) == gpus


def test_gpus_of_a_machine_whose_driver_does_not_list_them_are_unknown(tmp_path: Path) -> None:
    assert find_gpus(None, driver=tmp_path / "gpus") is None
