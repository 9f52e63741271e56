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


def test_a_split_that_the_model_does_not_allow_is_refused_with_the_nearest(headway: Run, checkpoint: Path) -> None:
    result = headway("up", "--model", str(checkpoint), "--tp", "5")
    assert result.returncode == 1
    assert "4 heads over 4 KV heads cannot be split in 5" in result.stderr
    assert "Use --tp 4, which needs 4 workers." in result.stderr


def test_fewer_workers_than_the_groups_take_are_refused(headway: Run, checkpoint: Path) -> None:
    one = headway("up", "--model", str(checkpoint), "--tp", "4", "--workers", "3")
    assert "tp 4 needs 4 workers, not 3." in one.stderr
    assert "Give --workers 4 or more, or --tp 3." in one.stderr
    models = ("--model", f"a={checkpoint}", "--model", f"b={checkpoint}")
    two = headway("up", *models, "--tp", "2", "--workers", "3")
    assert two.returncode == 1
    assert "2 models with tp 2 need 4 workers, not 3." in two.stderr
    assert "Give --workers 4 or more, or --tp 1." in two.stderr


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
