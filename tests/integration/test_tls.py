"""A stack whose processes know each other by certificates: new ones under a stream, and strangers."""

import asyncio
import stat
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from pathlib import Path

import grpc
import httpx
import pytest
from grpc_health.v1 import health_pb2, health_pb2_grpc

from headway.cli.calls import calling
from headway.cli.local_authority import local_files, make_certificate
from headway.client import Client
from headway.client.access import find_access
from headway.core.errors import UnavailableError
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for
from tests.integration.stream import Stream
from tests.rpc.authority import Authority


@pytest.fixture(scope="module")
def sealed(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    """One model on two emulated workers, with certificates of the stack's own."""
    directory = tmp_path_factory.mktemp("sealed")
    models = {"tiny": write_model(directory / "model")}
    running = RunningStack(directory / "state", models, "--emulate", "2xV100", "--tls").start()
    yield running
    running.stop()


def endpoints(stack: RunningStack) -> list[str]:
    """Those of all processes but the gateway, which anybody with a key may call."""
    processes = stack.status()["controller"]["processes"]
    found = [process["endpoint"] for process in processes if process["kind"] != "gateway"]
    return [*found, stack.stack.controller_endpoint]


async def ask(endpoint: str, stack: RunningStack, **files: str) -> int:
    access = find_access(stack.state_dir)
    assert access.tls is not None
    access = replace(access, tls=replace(access.tls, **files))
    async with calling(endpoint, health_pb2_grpc.HealthStub, access=access) as stub:
        return int((await stub.Check(health_pb2.HealthCheckRequest(), timeout=30)).status)


def test_strangers_are_refused_by_every_service(sealed: RunningStack, tmp_path: Path) -> None:
    stranger = Authority(tmp_path / "stranger").issue()
    own = local_files(sealed.state_dir)
    both = tmp_path / "both.pem"
    both.write_text(Path(own.ca).read_text() + Path(stranger.ca).read_text())
    for endpoint in endpoints(sealed):
        assert asyncio.run(ask(endpoint, sealed)) == health_pb2.HealthCheckResponse.SERVING
        with pytest.raises(UnavailableError, match=stranger.cert):
            asyncio.run(ask(endpoint, sealed, ca=str(both), cert=stranger.cert, key=stranger.key))
        with grpc.insecure_channel(endpoint) as channel, pytest.raises(grpc.RpcError) as caught:
            health_pb2_grpc.HealthStub(channel).Check(health_pb2.HealthCheckRequest(), timeout=30)
        assert caught.value.code() is grpc.StatusCode.UNAVAILABLE
    refusal = pytest.raises(UnavailableError, match=f"not accepted by those in the file {stranger.ca}")
    with Client(sealed.stack.grpc_endpoint, tls_ca=Path(stranger.ca)) as client, refusal:
        client.models()


def test_commands_and_clients_find_the_certificates(sealed: RunningStack, monkeypatch: pytest.MonkeyPatch) -> None:
    files = local_files(sealed.state_dir)
    assert stat.S_IMODE(Path(files.key).stat().st_mode) == 0o600
    for command in (("status",), ("kv", "top", "--once"), ("plan", "explain")):
        result = sealed.headway(*command)
        assert result.returncode == 0, result.stderr
    monkeypatch.setenv("HEADWAY_ENDPOINT", sealed.stack.grpc_endpoint)
    monkeypatch.setenv("HEADWAY_TLS_CA", files.ca)
    with Client() as client:
        assert client.generate_text("the headway", model="tiny", max_tokens=4)


def test_new_certificates_are_taken_up_while_a_stream_goes_on(sealed: RunningStack) -> None:
    """They are new for whatever connects afterwards: a router and a worker that were killed."""
    body = {"model": "tiny", "prompt": "the headway between two trains", "max_tokens": 4}
    old = Path(local_files(sealed.state_dir).cert).read_bytes()
    with ThreadPoolExecutor(2) as pool:
        streams = [Stream(sealed, pool, max_tokens=1000, temperature=0) for _ in range(2)]
        for stream in streams:
            stream.wait()
        make_certificate(sealed.state_dir)
        assert Path(local_files(sealed.state_dir).cert).read_bytes() != old
        for name in ("router", "worker-0"):
            before = sealed.kill(name)
            wait_for(lambda name=name, before=before: sealed.pid(name) != before)  # type: ignore[misc]
            wait_for(lambda: httpx.post(f"{sealed.url}/v1/completions", json=body, timeout=60).status_code == 200)
        first, second = (stream.texts.result(timeout=120) for stream in streams)
    assert first == second
    assert "calling with new certificates" in (sealed.state_dir / "logs" / "gateway.log").read_text()
