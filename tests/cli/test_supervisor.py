"""The supervisor with a real Redis and a controller process that follows a script."""

import asyncio
import os
import signal
import sys
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.process import end_all, is_alive
from headway.cli.supervisor.crashed import end_crashed
from headway.cli.supervisor.recorded import recorded_processes
from headway.cli.supervisor.supervisor import NAMESPACE, Supervisor
from headway.client.stack import ProcessId, Stack, read_stack
from headway.core.deployment import Deployment, GatewayOptions
from headway.core.errors import FailedPreconditionError
from headway.store.documents import Documents
from headway.store.redis import Database
from headway.store.schema import DEPLOYMENT
from headway.store.spoilt import spoilt_keys

SCRIPTED = (sys.executable, str(Path(__file__).with_name("scripted_controller.py")))
DEPLOYMENT_ASKED = Deployment(
    models=(), gateway=GatewayOptions(host="0.0.0.0", port=8123, grpc_port=9123, api_keys=("secret",))
)

HASHED = "sha256:2bb80d537b1da3e38bd30361aa855686bde0eacd7162fef6a25fe97bf527a25b"  # of "secret"


@asynccontextmanager
async def supervising(state_dir: Path) -> AsyncIterator[tuple[Supervisor, "asyncio.Task[None]"]]:
    supervisor = Supervisor(state_dir, DEPLOYMENT_ASKED, controller_command=SCRIPTED)
    running = asyncio.create_task(supervisor.run())
    try:
        yield supervisor, running
    finally:
        supervisor.stop_now()
        await running


async def stack_where(state_dir: Path, holds: Callable[[Stack], bool]) -> Stack:
    async with asyncio.timeout(60):
        while (stack := read_stack(state_dir)) is None or not holds(stack):  # noqa: ASYNC110 - another process writes it
            await asyncio.sleep(0.05)
    return stack


async def served_stack(state_dir: Path) -> Stack:
    return await stack_where(state_dir, lambda stack: stack.controller_endpoint != "")


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(60):
        while not condition():  # noqa: ASYNC110 - another process makes it true
            await asyncio.sleep(0.02)


async def written(stack: Stack) -> None:
    """Until nothing that Redis was told waits to be written to its file; what has been written outlives it."""
    database = Database.connect(stack.redis_url, namespace=NAMESPACE)
    async with asyncio.timeout(60):
        while (await database.redis.info("persistence"))["aof_buffer_length"]:  # noqa: ASYNC110 - as above
            await asyncio.sleep(0.02)
    await database.close()


async def launched(stack: Stack) -> ProcessId:
    (process,) = await recorded_processes(stack.redis_url, namespace=NAMESPACE)
    return process


async def test_a_stack_is_published_with_addresses_that_clients_can_use(tmp_path: Path) -> None:
    async with supervising(tmp_path):
        stack = await served_stack(tmp_path)
        assert (stack.http_url, stack.grpc_endpoint) == ("http://127.0.0.1:8123", "127.0.0.1:9123")
        assert stack.api_key == "secret"
        assert stack.supervisor.pid == os.getpid()
        assert is_alive(stack.redis)
        assert is_alive(stack.controller)
        database = Database.connect(stack.redis_url, namespace=NAMESPACE)
        kept = await Documents(database, DEPLOYMENT, Deployment).get()
        assert kept == replace(DEPLOYMENT_ASKED, gateway=replace(DEPLOYMENT_ASKED.gateway, api_keys=(HASHED,)))
        await database.close()
        assert (tmp_path / "redis").stat().st_mode & 0o077 == 0


@pytest.mark.parametrize("hurry", [False, True])
async def test_stopping_leaves_no_process_and_no_file(tmp_path: Path, hurry: bool) -> None:
    async with supervising(tmp_path) as (supervisor, running):
        stack = await served_stack(tmp_path)
        sleep = await launched(stack)
        assert is_alive(sleep)
        (supervisor.stop_now if hurry else supervisor.stop)()
        await running
    assert [is_alive(process) for process in (sleep, stack.controller, stack.redis)] == [False] * 3
    assert read_stack(tmp_path) is None


async def test_a_second_stop_does_not_wait_for_running_requests(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("SCRIPT", "stuck")
    monkeypatch.setenv("SHUTDOWN_ASKED", str(tmp_path / "shutdown-asked"))
    async with supervising(tmp_path) as (supervisor, running):
        sleep = await launched(await served_stack(tmp_path))
        supervisor.stop()
        await until((tmp_path / "shutdown-asked").exists)
        assert not running.done()
        assert is_alive(sleep)
        supervisor.stop()
        async with asyncio.timeout(15):
            await running
        assert not is_alive(sleep)


async def test_a_killed_controller_comes_back_and_what_it_launched_goes_on(tmp_path: Path) -> None:
    async with supervising(tmp_path):
        stack = await served_stack(tmp_path)
        sleep = await launched(stack)
        assert stack.controller is not None
        os.kill(stack.controller.pid, signal.SIGKILL)
        after = await stack_where(
            tmp_path,
            lambda now: now.controller != stack.controller and now.controller_endpoint != stack.controller_endpoint,
        )
        assert is_alive(after.controller)
        assert await launched(after) == sleep
        assert is_alive(sleep)


async def test_a_controller_that_does_not_answer_is_replaced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("headway.cli.supervisor.heartbeat._PROBE_TIMEOUT_S", 0.5)
    monkeypatch.setattr("headway.cli.supervisor.heartbeat.MAX_SILENT_PROBES", 2)
    async with supervising(tmp_path):
        stack = await served_stack(tmp_path)
        sleep = await launched(stack)
        assert stack.controller is not None
        os.kill(stack.controller.pid, signal.SIGSTOP)
        after = await stack_where(
            tmp_path,
            lambda now: now.controller != stack.controller and now.controller_endpoint != stack.controller_endpoint,
        )
        assert is_alive(after.controller)
        assert not is_alive(stack.controller)
        assert await launched(after) == sleep


async def test_a_killed_redis_comes_back_with_its_data(tmp_path: Path) -> None:
    async with supervising(tmp_path):
        stack = await served_stack(tmp_path)
        sleep = await launched(stack)
        assert stack.redis is not None
        await written(stack)
        os.kill(stack.redis.pid, signal.SIGKILL)
        after = await stack_where(tmp_path, lambda now: now.redis not in (None, stack.redis))
        assert after.redis_url == stack.redis_url
        assert await launched(after) == sleep


@pytest.mark.parametrize("spoilt", ['{"models": [', '{"later": 1}', ""])
async def test_a_deployment_that_no_copy_has_is_the_one_of_the_start_again(tmp_path: Path, spoilt: str) -> None:
    """Or each controller would end as it begins. What was there is set aside, and stays named."""
    async with supervising(tmp_path):
        stack = await served_stack(tmp_path)
        database = Database.connect(stack.redis_url, namespace=NAMESPACE)
        before = await Documents(database, DEPLOYMENT, Deployment).get()
        assert stack.controller is not None
        await database.redis.set(DEPLOYMENT.key(NAMESPACE), spoilt)
        os.kill(stack.controller.pid, signal.SIGKILL)
        await stack_where(tmp_path, lambda now: now.controller not in (None, stack.controller))
        assert await Documents(database, DEPLOYMENT, Deployment).get() == before
        assert await spoilt_keys(database) == [DEPLOYMENT.key(NAMESPACE)]
        await database.close()


async def test_a_controller_that_never_starts_is_given_up_with_its_last_words(tmp_path: Path) -> None:
    command = (sys.executable, "-c", "import sys; sys.exit('no such module')")
    supervisor = Supervisor(tmp_path, DEPLOYMENT_ASKED, controller_command=command)
    with pytest.raises(FailedPreconditionError, match="5 times") as failure:
        await supervisor.run()
    assert "no such module" in failure.value.hint
    assert read_stack(tmp_path) is None


@pytest.mark.parametrize("is_redis_gone", [False, True])
async def test_what_a_killed_supervisor_left_is_ended(tmp_path: Path, is_redis_gone: bool) -> None:
    stack = await crashed_stack(tmp_path)
    sleep = await launched(stack)
    with (tmp_path / "logs" / "worker-0.log").open("ab") as log:  # launched, and not yet recorded
        unrecorded = await asyncio.create_subprocess_exec("sleep", "600", stdout=log, start_new_session=True)
    if is_redis_gone:
        assert stack.redis is not None
        assert stack.controller is not None
        await written(stack)
        await asyncio.to_thread(end_all, [stack.controller, stack.redis], grace_s=5)
    assert is_alive(sleep)
    await end_crashed(tmp_path, stack)
    assert [is_alive(process) for process in (sleep, stack.controller, stack.redis)] == [False] * 3
    assert await unrecorded.wait() == -signal.SIGTERM
    assert read_stack(tmp_path) is None


_SUPERVISOR = """
import asyncio, sys
from pathlib import Path
from headway.cli.supervisor.supervisor import Supervisor
from headway.core.deployment import Deployment
state_dir, *command = sys.argv[1:]
asyncio.run(Supervisor(Path(state_dir), Deployment(models=()), controller_command=tuple(command)).run())
"""


async def crashed_stack(state_dir: Path) -> Stack:
    """A stack whose supervisor, a process of its own, was killed."""
    supervisor = await asyncio.create_subprocess_exec(sys.executable, "-c", _SUPERVISOR, str(state_dir), *SCRIPTED)
    stack = await served_stack(state_dir)
    supervisor.kill()
    await supervisor.wait()
    return stack
