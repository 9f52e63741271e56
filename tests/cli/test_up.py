"""What `headway up` refuses before it starts anything."""

import os
import socket
from pathlib import Path

from headway.cli.process import identify
from headway.client.stack import ProcessId, Stack, write_stack
from tests.cli.conftest import Run


def test_a_missing_model_is_named(headway: Run, tmp_path: Path) -> None:
    result = headway("up", "--model", str(tmp_path / "nothing"))
    assert result.returncode == 1
    assert f"There is no directory {tmp_path}/nothing" in result.stderr


def test_fewer_workers_than_models_are_refused(headway: Run, checkpoint: Path) -> None:
    result = headway("up", "--model", f"a={checkpoint}", "--model", f"b={checkpoint}", "--workers", "1")
    assert result.returncode == 1
    assert "--workers 2" in result.stderr


def test_a_taken_port_is_refused(headway: Run, checkpoint: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as server:
        result = headway("up", "--model", str(checkpoint), "--port", str(server.getsockname()[1]))
    assert result.returncode == 1
    assert "is taken by another process" in result.stderr


def test_a_second_stack_in_one_state_directory_is_refused(headway: Run, checkpoint: Path, tmp_path: Path) -> None:
    supervised = _stack(supervisor=identify(os.getpid()))
    write_stack(tmp_path, supervised)
    result = headway("up", "--model", str(checkpoint), "--state-dir", str(tmp_path))
    assert result.returncode == 1
    assert "A stack runs already" in result.stderr
    assert "`headway down`" in result.stderr


def test_what_a_crashed_stack_left_must_be_ended_first(headway: Run, checkpoint: Path, tmp_path: Path) -> None:
    orphaned = _stack(supervisor=ProcessId(pid=os.getpid(), started_at_s=1.0), controller=identify(os.getpid()))
    write_stack(tmp_path, orphaned)
    result = headway("up", "--model", str(checkpoint), "--state-dir", str(tmp_path))
    assert result.returncode == 1
    assert "lost its supervisor" in result.stderr


def test_a_state_directory_that_cannot_be_made_is_refused(headway: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = headway("up", "--model", str(checkpoint), "--state-dir", str(tmp_path / "file" / "state"))
    assert result.returncode == 1
    assert "--state-dir" in result.stderr


def _stack(*, supervisor: ProcessId, controller: ProcessId | None = None) -> Stack:
    return Stack(
        redis_url="unix:///nowhere",
        http_url="http://127.0.0.1:8000",
        grpc_endpoint="127.0.0.1:9000",
        supervisor=supervisor,
        controller=controller,
    )
