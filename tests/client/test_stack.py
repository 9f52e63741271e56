"""Finding a stack by the file in its state directory."""

from pathlib import Path

import pytest

from headway.client.address import Address, find_address
from headway.client.stack import (
    ProcessId,
    Stack,
    default_state_dir,
    find_stack,
    read_stack,
    remove_stack,
    write_stack,
)
from headway.core.errors import InvalidArgumentError, NotFoundError

STACK = Stack(
    redis_url="unix:///tmp/redis.sock",
    http_url="http://127.0.0.1:8000",
    grpc_endpoint="127.0.0.1:9000",
    supervisor=ProcessId(pid=1, start="boot/25"),
    api_key="secret",
)


def test_a_stack_is_read_as_it_was_written_and_only_by_its_owner(tmp_path: Path) -> None:
    write_stack(tmp_path, STACK)
    assert read_stack(tmp_path) == STACK
    assert (tmp_path / "stack.json").stat().st_mode & 0o777 == 0o600
    remove_stack(tmp_path)
    assert read_stack(tmp_path) is None


def test_a_missing_stack_names_its_directory(tmp_path: Path) -> None:
    with pytest.raises(NotFoundError, match=str(tmp_path)):
        find_stack(tmp_path)


def test_a_damaged_file_is_named(tmp_path: Path) -> None:
    (tmp_path / "stack.json").write_text("{")
    with pytest.raises(InvalidArgumentError, match=r"stack\.json"):
        read_stack(tmp_path)


def test_the_default_directory_follows_xdg(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", "/state")
    assert default_state_dir() == Path("/state/headway/default")
    monkeypatch.delenv("XDG_STATE_HOME")
    assert default_state_dir() == Path.home() / ".local/state/headway/default"


def test_what_is_given_goes_before_the_environment_and_that_before_the_local_stack(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path))
    monkeypatch.delenv("HEADWAY_ENDPOINT", raising=False)
    monkeypatch.delenv("HEADWAY_API_KEY", raising=False)
    default_state_dir().mkdir(parents=True)
    write_stack(default_state_dir(), STACK)
    assert find_address(None, api_key=None) == Address("127.0.0.1:9000", "secret")
    monkeypatch.setenv("HEADWAY_ENDPOINT", "far:1")
    assert find_address(None, api_key=None) == Address("far:1")
    assert find_address("near:1", api_key="mine") == Address("near:1", "mine")
