"""Who may call the processes of a stack: whoever has its token, on every method of every service."""

import asyncio
import os
import stat
import subprocess
import sys
from collections.abc import Iterator
from importlib import import_module
from pathlib import Path

import grpc
import pytest
from google.protobuf.descriptor import MethodDescriptor
from grpc_reflection.v1alpha import reflection_pb2, reflection_pb2_grpc

from headway.cli.running import calling_kvcache
from headway.client.access import Access
from headway.client.stack import find_stack
from headway.client.token import TOKEN_FILE, TOKEN_VARIABLE, find_token
from headway.core.errors import UnauthenticatedError
from headway.rpc.credentials import ROLES, role_token
from headway.rpc.permissions import may_call
from headway.v1 import kvcache_pb2
from tests.integration.stack import RunningStack

INTERNAL = ("router", "kvcache", "planner", "profiler", "controller", "worker-0")
HEALTH = "grpc.health.v1.Health"
NOBODY = 65534
WRONG = (("authorization", "Bearer between-the-trains"),)

AS_NOBODY = """
import os, sys
from pathlib import Path
import grpc
from redis import Redis
from redis.exceptions import ConnectionError as RedisConnectionError
from headway.client.stack import find_stack
from headway.core.errors import UnauthenticatedError
from headway.rpc.credentials import ROLES, role_token
from headway.rpc.permissions import may_call
from headway.v1 import profiler_pb2, profiler_pb2_grpc
import encodings.idna

state_dir, profiler, redis_socket, *pids = sys.argv[1:]
os.setgroups([]); os.setgid({nobody}); os.setuid({nobody})
try:
    find_stack(Path(state_dir))
except UnauthenticatedError as error:
    print("stack:", error.code)
for name in ("auth-token", "stack.json"):
    try:
        (Path(state_dir) / name).read_text()
    except PermissionError:
        print(name + ": denied")
try:
    Redis(unix_socket_path=redis_socket).ping()
except RedisConnectionError as error:
    print("redis:", "denied" if "denied" in str(error) else error)
for pid in pids:
    try:
        Path("/proc", pid, "environ").read_bytes()
    except PermissionError:
        continue
    print("environment of", pid, "read")
with grpc.insecure_channel(profiler) as channel:
    request = profiler_pb2.CaptureModelRequest(source="evil:f", batch=1)
    try:
        print(list(profiler_pb2_grpc.ProfilerServiceStub(channel).CaptureModel(request, timeout=30)))
    except grpc.RpcError as error:
        print("capture:", error.code().name)
"""


def services(channel: grpc.Channel, stack: RunningStack) -> Iterator[str]:
    request = reflection_pb2.ServerReflectionRequest(list_services="")
    stub = reflection_pb2_grpc.ServerReflectionStub(channel)
    answer = next(stub.ServerReflectionInfo(iter([request]), metadata=stack.metadata))
    yield from (service.name for service in answer.list_services_response.service)


def methods(service: str) -> list[MethodDescriptor]:
    """As the generated code describes them."""
    package, _, name = service.rpartition(".")
    modules = {"grpc.reflection.v1alpha": "grpc_reflection.v1alpha.reflection_pb2"}
    kind = name.removesuffix("Service").lower()
    module = import_module(modules.get(package, f"headway.v1.{kind}_pb2"))
    return list(module.DESCRIPTOR.services_by_name[name].methods)


def status_of(
    channel: grpc.Channel, method: MethodDescriptor, *, metadata: tuple[tuple[str, str], ...]
) -> grpc.StatusCode:
    """Of a call with an empty message."""
    path = f"/{method.containing_service.full_name}/{method.name}"
    try:
        if method.client_streaming:
            make = channel.stream_stream if method.server_streaming else channel.stream_unary
            answer = make(path)(iter([b""]), timeout=10, metadata=metadata)
        else:
            make = channel.unary_stream if method.server_streaming else channel.unary_unary
            answer = make(path)(b"", timeout=10, metadata=metadata)
        if method.server_streaming:
            next(answer)
    except grpc.RpcError as error:
        return error.code()
    return grpc.StatusCode.OK


@pytest.mark.parametrize("name", INTERNAL)
@pytest.mark.parametrize("metadata", [(), WRONG], ids=["no token", "a wrong one"])
def test_no_method_of_any_service_answers_without_the_token(
    stack: RunningStack, name: str, metadata: tuple[tuple[str, str], ...]
) -> None:
    with grpc.insecure_channel(stack.endpoint(name)) as channel:
        found = [method for service in services(channel, stack) if service != HEALTH for method in methods(service)]
        codes = {method.full_name: status_of(channel, method, metadata=metadata) for method in found}
    assert len(codes) > 2
    assert set(codes.values()) == {grpc.StatusCode.UNAUTHENTICATED}, codes


@pytest.mark.parametrize("name", INTERNAL)
def test_a_process_may_call_what_its_role_needs_and_nothing_else(stack: RunningStack, name: str) -> None:
    """Each role, by its own token, on each method that it has no business with."""
    token = find_token(stack.state_dir)
    assert token is not None
    refused, num_allowed = {}, 0
    with grpc.insecure_channel(stack.endpoint(name)) as channel:
        for service in services(channel, stack):
            for method in methods(service) if service != HEALTH else ():
                for role in ROLES:
                    if may_call(role, f"/{service}/{method.name}"):
                        num_allowed += 1
                        continue
                    metadata = (("authorization", f"Bearer {role_token(token, role)}"),)
                    refused[method.full_name, role] = status_of(channel, method, metadata=metadata)
    assert set(refused.values()) == {grpc.StatusCode.PERMISSION_DENIED}, refused
    assert num_allowed > 0


def test_a_process_is_given_the_token_of_its_role_alone(stack: RunningStack) -> None:
    token = find_token(stack.state_dir)
    assert token is not None
    for name in ("gateway", "router", "kvcache", "planner", "profiler", "worker-0"):
        process = Path("/proc") / str(stack.pid(name))
        assert token.encode() not in (process / "environ").read_bytes(), name


def test_the_fault_says_where_the_token_is(stack: RunningStack, monkeypatch: pytest.MonkeyPatch) -> None:
    result = stack.headway("kv", "top", "--once")
    assert result.returncode == 0, result.stderr

    async def ask() -> None:
        async with calling_kvcache(stack.state_dir, api_key=None) as kvcache:
            await kvcache.GetUsage(kvcache_pb2.GetUsageRequest(), timeout=5)

    monkeypatch.setattr("headway.cli.running.find_access", lambda _: Access())
    with pytest.raises(UnauthenticatedError, match=r"carries no token .* auth-token .* HEADWAY_AUTH_TOKEN"):
        asyncio.run(ask())
    monkeypatch.setattr("headway.cli.running.find_access", lambda _: Access(token="between-the-trains"))
    with pytest.raises(UnauthenticatedError, match=r"token is not this stack's.* --state-dir"):
        asyncio.run(ask())


def test_the_token_is_its_owners_and_on_no_command_line(stack: RunningStack) -> None:
    path = stack.state_dir / TOKEN_FILE
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert stat.S_IMODE(stack.state_dir.stat().st_mode) == 0o700
    token = find_token(stack.state_dir)
    assert token is not None
    assert len(token) == 64
    processes = stack.status()["controller"]["processes"]
    pids = [process["pid"] for process in processes] + [stack.stack.supervisor.pid]
    assert not [pid for pid in pids if token.encode() in Path(f"/proc/{pid}/cmdline").read_bytes()]
    assert not [log for log in stack.state_dir.rglob("*.log") if token in log.read_text()]


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can start a process of another user")
def test_another_user_of_the_machine_reaches_nothing(stack: RunningStack, tmp_path: Path) -> None:
    """A real process of another user: the token, the state, the environments, Redis and the calls are closed to it."""
    processes = stack.status()["controller"]["processes"]
    arguments = [
        str(stack.state_dir),
        stack.endpoint("profiler"),
        find_stack(stack.state_dir).redis_url.removeprefix("unix://"),
        *(str(process["pid"]) for process in processes),
    ]
    environment = {name: value for name, value in os.environ.items() if name != TOKEN_VARIABLE}
    command = [sys.executable, "-c", AS_NOBODY.format(nobody=NOBODY), *arguments]
    answer = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False, env=environment)
    assert answer.stdout.splitlines() == [
        "stack: unauthenticated",
        "auth-token: denied",
        "stack.json: denied",
        "redis: denied",
        "capture: UNAUTHENTICATED",
    ], answer.stderr
