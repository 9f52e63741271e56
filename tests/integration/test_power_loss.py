"""The machine loses its power right after something was acknowledged, and of the files of the stack's state there is
what was synced: what was acknowledged is there again. A real Redis and the controller write on a layer that tells.
"""

import asyncio
import shutil
import subprocess
import sys
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from itertools import count
from pathlib import Path

import httpx
import psutil
import pytest

from headway.cli.calls import calling_controller
from headway.cli.supervisor.supervisor import NAMESPACE
from headway.store.api_keys import ApiKeyStore
from headway.store.embedded import EmbeddedRedis
from headway.store.kept import recover
from headway.store.plans import PlanStore
from headway.store.redis import Database
from headway.v1 import controller_pb2
from tests.chaos.applies import Applies
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack
from tests.integration.synced import SyncedDisk

NUM_ROUNDS = 3


@pytest.fixture
def disk(tmp_path: Path) -> SyncedDisk:
    (tmp_path / "state").mkdir(mode=0o700)
    return SyncedDisk(tmp_path / "state", tmp_path / "synced")


def test_what_was_acknowledged_outlives_a_loss_of_power(disk: SyncedDisk, tmp_path: Path) -> None:
    models = {"tiny": write_model(tmp_path / "model")}
    stack = RunningStack(disk.directory, models, "--emulate", "2xV100", "--no-profile")
    with disk.loaded():
        stack.start()
    applies, plan_ids, keys = Applies(disk.directory), list[str](), dict[str, bool]()  # keys: whether they open
    losses = (disk.lose_power(tmp_path / f"lost-{number}") for number in count())
    secret = ""
    for _ in range(NUM_ROUNDS):
        applied = asyncio.run(applies.apply())
        state = next(losses)
        assert applied.is_acknowledged
        plan_ids.append(applied.plan_id)
        asyncio.run(check(state, plan_ids, keys))
        made = asyncio.run(make_key(disk.directory))
        state = next(losses)
        secret, key_id = made.secret, made.api_key.key_id
        keys[key_id] = True
        asyncio.run(check(state, plan_ids, keys))
    revoked = next(iter(keys))
    asyncio.run(revoke_key(disk.directory, revoked))
    state = next(losses)
    keys[revoked] = False
    asyncio.run(check(state, plan_ids, keys))
    end_machine(stack)
    shutil.rmtree(disk.directory)
    state.rename(disk.directory)
    stack.start()
    try:
        assert [each for each in reversed(applies.plan_ids()) if each in plan_ids] == plan_ids
        body = {"model": "tiny", "prompt": "a", "max_tokens": 2}
        asked = [
            httpx.post(f"{stack.url}/v1/completions", json=body, headers=headers, timeout=60).status_code
            for headers in ({}, {"authorization": f"Bearer {secret}"})
        ]
        assert asked == [401, 200]
    finally:
        stack.stop()


async def check(state: Path, plan_ids: list[str], keys: dict[str, bool]) -> None:
    """A Redis on these files, and what the controller does as it begins, have all of it."""
    async with after_restart(state) as database:
        history = await PlanStore(database).history()
        assert [each for each in reversed(history) if each in plan_ids] == plan_ids
        assert await PlanStore(database).current_id() == plan_ids[-1]
        assert {each.key_id: each.revoked_at_s is None for each in await ApiKeyStore(database).all()} == keys


@asynccontextmanager
async def after_restart(state: Path) -> AsyncIterator[Database]:
    """On a copy: the files are left as they are."""
    copy = state.with_name(f"{state.name}-tried")
    shutil.copytree(state, copy)
    server = EmbeddedRedis(copy / "redis")
    server.start()
    database = Database.connect(server.url, namespace=NAMESPACE)
    try:
        await recover(database, copy / "redis" / "kept.json")
        yield database
    finally:
        await database.close()
        server.stop()


async def make_key(state_dir: Path) -> controller_pb2.CreateApiKeyResponse:
    async with calling_controller(state_dir) as stub:
        return await stub.CreateApiKey(controller_pb2.CreateApiKeyRequest(), timeout=30)


async def revoke_key(state_dir: Path, key_id: str) -> None:
    async with calling_controller(state_dir) as stub:
        await stub.RevokeApiKey(controller_pb2.RevokeApiKeyRequest(key_id=key_id), timeout=30)


def end_machine(stack: RunningStack) -> None:
    """Every process of the stack at once."""
    supervisor = psutil.Process(stack.stack.supervisor.pid)
    processes = {supervisor, *supervisor.children(recursive=True), *stack.processes()}
    supervisor.suspend()  # it would begin what it sees end
    for process in processes:
        process.kill()
    psutil.wait_procs(list(processes), timeout=30)


PROGRAM = """
import os
def write(name, text, sync=True, mode="w"):
    with open(os.path.join(os.environ["SYNCED_OF"], name), mode) as file:
        file.write(text)
        file.flush()
        if sync:
            os.fsync(file.fileno())
def rename(old, new):
    os.rename(*(os.path.join(os.environ["SYNCED_OF"], name) for name in (old, new)))
"""


@pytest.mark.parametrize(
    ("code", "left"),
    [
        ("write('a', 'one')", {"a": "one"}),
        ("write('a', 'one', sync=False)", {}),
        ("write('a', 'one'); write('a', ' two', sync=False, mode='a')", {"a": "one"}),
        ("write('a', 'old'); write('b', 'new'); rename('b', 'a')", {"a": "old", "b": "new"}),
        ("write('a', 'old'); write('b', 'new'); rename('b', 'a'); names()", {"a": "new"}),
        ("write('b', 'new', sync=False); rename('b', 'a'); names()", {"a": ""}),
    ],
    ids=["synced", "unsynced", "appended", "renamed", "renamed-and-synced", "renamed-without-content"],
)
def test_the_disk_keeps_what_was_synced_and_nothing_else(
    disk: SyncedDisk, tmp_path: Path, code: str, left: dict[str, str]
) -> None:
    names = 'names = lambda: os.fsync(os.open(os.environ["SYNCED_OF"], os.O_RDONLY))\n'
    with disk.loaded():
        subprocess.run([sys.executable, "-S", "-c", f"{PROGRAM}{names}write('first', '')\n{code}"], check=True)
    found = {path.name: path.read_text() for path in disk.lose_power(tmp_path / "left").iterdir()}
    assert found == {"first": "", **left}
