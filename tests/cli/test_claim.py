"""Which directories a new stack may keep its state in."""

import os
import stat
from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.claim import claim
from headway.cli.process import identify
from headway.client.stack import ProcessId, Stack, write_stack
from headway.core.errors import AlreadyExistsError, InvalidArgumentError

NOBODY = 65534


def this_process() -> ProcessId:
    return identify(os.getpid())


def mode(path: Path) -> int:
    return stat.S_IMODE(path.stat().st_mode)


@pytest.fixture
def ended() -> Stack:
    """A stack none of whose processes is alive: nobody has a pid of this process and another start."""
    return Stack(
        redis_url="unix:///r",
        http_url="http://127.0.0.1:8000",
        grpc_endpoint="127.0.0.1:8001",
        supervisor=replace(this_process(), start="before/1"),
    )


def test_a_directory_that_is_not_there_is_made_for_its_owner_alone(tmp_path: Path) -> None:
    claim(tmp_path / "state" / "one")
    assert mode(tmp_path / "state" / "one") == 0o700


def test_one_that_others_may_read_is_closed_to_them(tmp_path: Path) -> None:
    tmp_path.chmod(0o755)
    claim(tmp_path)
    assert mode(tmp_path) == 0o700


def test_one_that_everybody_may_write_to_is_refused(tmp_path: Path) -> None:
    tmp_path.chmod(0o1777)
    with pytest.raises(InvalidArgumentError, match="not this user's alone") as caught:
        claim(tmp_path)
    assert caught.value.field == "--state-dir"
    assert mode(tmp_path) == 0o1777, "as it was"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a directory to another user")
def test_one_of_another_user_is_refused(tmp_path: Path) -> None:
    os.chown(tmp_path, NOBODY, NOBODY)
    with pytest.raises(InvalidArgumentError, match="not this user's alone"):
        claim(tmp_path)


def test_a_file_in_its_place_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "state"
    path.touch()
    with pytest.raises(InvalidArgumentError, match="cannot hold the state: File exists") as caught:
        claim(path)
    assert "--state-dir" in caught.value.hint


def test_a_stack_that_runs_keeps_its_directory(tmp_path: Path, ended: Stack) -> None:
    write_stack(tmp_path, replace(ended, supervisor=this_process()))
    with pytest.raises(AlreadyExistsError, match=r"runs already .* http://127.0.0.1:8000") as caught:
        claim(tmp_path)
    assert "headway down" in caught.value.hint


@pytest.mark.parametrize("left", ["redis", "controller"])
def test_so_does_one_that_lost_its_supervisor_alone(tmp_path: Path, ended: Stack, left: str) -> None:
    write_stack(tmp_path, replace(ended, **{left: this_process()}))
    with pytest.raises(AlreadyExistsError, match="lost its supervisor") as caught:
        claim(tmp_path)
    assert "headway down" in caught.value.hint
