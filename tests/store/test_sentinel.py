"""Redis behind sentinels: addresses, and a real failover."""

import asyncio
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from redis import Redis
from redis.exceptions import RedisError

from headway.cli.ports import take_port
from headway.core.errors import HeadwayError, InvalidArgumentError
from headway.store.documents import Documents
from headway.store.embedded import find_redis_server
from headway.store.membership import Member, Membership
from headway.store.redis import Database
from headway.store.schema import KeyFamily
from headway.store.sentinel import SentinelAddress, parse_sentinel_url

_DOCUMENT = KeyFamily("note:{}", "string (JSON)", None, "a test", "a note")


@dataclass(frozen=True, slots=True)
class Note:
    text: str


@pytest.mark.parametrize(
    ("url", "address"),
    [
        ("redis://host:1/0", None),
        ("unix:///tmp/redis.sock", None),
        ("redis+sentinel://a:1/main", SentinelAddress(sentinels=(("a", 1),), service="main")),
        (
            "rediss+sentinel://:p%40ss@a,b:7/main/3",
            SentinelAddress(
                sentinels=(("a", 26379), ("b", 7)), service="main", database=3, password="p@ss", has_tls=True
            ),
        ),
        (
            "redis+sentinel://me:x@[::1]:5/s",
            SentinelAddress(sentinels=(("::1", 5),), service="s", username="me", password="x"),
        ),
    ],
)
def test_addresses(url: str, address: SentinelAddress | None) -> None:
    assert parse_sentinel_url(url) == address


@pytest.mark.parametrize(
    "url", ["redis+sentinel:///main", "redis+sentinel://a:1", "redis+sentinel://a:b/main", "redis+sentinel://a/m/x"]
)
def test_a_malformed_address_is_named_without_its_password(url: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        parse_sentinel_url(url.replace("://", "://:secret@", 1))
    assert "secret" not in str(caught.value)


@dataclass(frozen=True, slots=True)
class Watched:
    """Two servers and the sentinel that watches over them."""

    url: str
    primary: "subprocess.Popen[bytes]"


@pytest.fixture
def watched(tmp_path: Path) -> Iterator[Watched]:
    """A primary, its replica, and a sentinel that makes the replica the primary half a second after that is gone."""
    first, second, sentinel = (take_port("127.0.0.1", 0, option="--port") for _ in range(3))
    server, running = str(find_redis_server()), []

    def start(name: str, *lines: str, mode: tuple[str, ...] = ()) -> "subprocess.Popen[bytes]":
        directory = tmp_path / name
        directory.mkdir()
        path = directory / "redis.conf"
        path.write_text("\n".join(("bind 127.0.0.1", f"dir {directory}", 'save ""', *lines)) + "\n")
        process = subprocess.Popen([server, str(path), *mode], stdout=subprocess.DEVNULL)
        running.append(process)
        return process

    primary = start("first", f"port {first}")
    start("second", f"port {second}", f"replicaof 127.0.0.1 {first}")
    _wait(second, lambda redis: redis.info("replication")["master_link_status"] == "up")
    start(
        "sentinel",
        f"port {sentinel}",
        f"sentinel monitor main 127.0.0.1 {first} 1",
        "sentinel down-after-milliseconds main 500",
        "sentinel failover-timeout main 2000",
        mode=("--sentinel",),
    )
    _wait(sentinel, lambda redis: redis.info("sentinel")["master0"]["slaves"] == 1)
    yield Watched(f"redis+sentinel://127.0.0.1:{sentinel}/main", primary)
    for process in running:
        process.terminate()
        process.wait(10)


def _wait(port: int, is_so: Callable[[Any], bool]) -> None:
    deadline_s = time.monotonic() + 30
    with Redis(port=port, decode_responses=True) as redis:
        while time.monotonic() < deadline_s:
            with suppress(RedisError):
                if is_so(redis):
                    return
            time.sleep(0.05)
    raise AssertionError("it does not come up")


async def test_a_stack_goes_on_where_the_replica_takes_over(watched: Watched, namespace: str) -> None:
    database = Database.connect(watched.url, namespace=namespace)
    notes = Documents(database, _DOCUMENT, Note)
    membership = Membership(database, clock=lambda: 0.0)
    await notes.put(Note("before"), "a")
    assert await database.redis.wait(1, 5000) == 1, "the replica has it"

    watched.primary.kill()
    watched.primary.wait()
    async with asyncio.timeout(30):
        while await _fault(notes, Note("after")) is not None:  # noqa: ASYNC110 - sentinels decide when
            await asyncio.sleep(0.1)

    assert await notes.get("a") == Note("before")
    assert await notes.get("b") == Note("after")
    member = Member(kind="router", member_id="r", endpoint="h:1", metrics_endpoint="", pid=1, started_at_s=1.0)
    await membership.enter(member)
    assert await membership.members("router") == [member], "leases are read by a script"
    await database.close()


async def _fault(notes: Documents[Note], note: Note) -> HeadwayError | None:
    try:
        await notes.put(note, "b")
    except HeadwayError as error:
        return error
    return None
