"""The private Redis of a stack, where its files are not what they were."""

from collections.abc import Iterator
from pathlib import Path

import pytest
from redis import Redis

from headway.core.errors import UnavailableError
from headway.store.embedded import EmbeddedRedis


@pytest.fixture
def server(tmp_path: Path) -> Iterator[EmbeddedRedis]:
    server = EmbeddedRedis(tmp_path / "redis")
    yield server
    server.stop()


def _appended(directory: Path) -> Path:
    """The file that commands are appended to: up to Redis 6 the only one."""
    [path] = [*directory.glob("appendonly.aof"), *directory.glob("appendonlydir/*.incr.aof")]
    return path


def test_one_that_cannot_read_its_data_begins_without_and_they_are_kept_aside(
    server: EmbeddedRedis, tmp_path: Path
) -> None:
    server.start()
    with Redis.from_url(server.url) as redis:
        for i in range(100):
            redis.set(f"key-{i}", "value")
    server.stop()
    path = _appended(tmp_path / "redis")
    content = path.read_bytes()
    path.write_bytes(content[: len(content) // 2] + b"no command" + content[len(content) // 2 :])
    server.start()
    with Redis.from_url(server.url) as redis:
        assert redis.dbsize() == 0
        redis.set("key", "value")
    assert len([*(tmp_path / "redis").glob("*.unreadable-*")]) == 1
    server.stop()
    server.start()
    with Redis.from_url(server.url) as redis:
        assert redis.dbsize() == 1, "it starts from what it has written since"
    assert len([*(tmp_path / "redis").glob("*.unreadable-*")]) == 1


def test_data_stay_where_they_are_if_something_else_is_wrong(server: EmbeddedRedis, tmp_path: Path) -> None:
    server.start()
    server.stop()
    (tmp_path / "redis" / "redis.sock").unlink(missing_ok=True)
    (tmp_path / "redis" / "redis.sock").mkdir()
    with pytest.raises(UnavailableError, match="did not start"):
        server.start()
    assert not [*(tmp_path / "redis").glob("*.unreadable-*")]
