import json
import os
from pathlib import Path

from headway.cli.process import identify
from headway.client.stack import ProcessId, Stack, write_stack
from tests.cli.conftest import Run


def test_status_shows_models_workers_load_and_attainment(headway: Run, endpoint: str) -> None:
    result = headway("status", "--endpoint", endpoint)
    assert result.returncode == 0
    for text in ("ready, plan plan-1", "TTFT 500.0 ms", "90.0%", "worker-0", "group-0", "Test CPU", "50% of 1024"):
        assert text in result.stdout


def test_json_has_everything(headway: Run, endpoint: str) -> None:
    status = json.loads(headway("status", "--json", "--endpoint", endpoint).stdout)
    assert status["controller"]["ready"] is True
    assert status["fleet"]["groups"][0]["num_running"] == 3
    assert status["plan"]["plan_id"] == "plan-1"


def stack_at(state_dir: Path, *, supervisor: ProcessId) -> None:
    state_dir.mkdir()
    write_stack(
        state_dir,
        Stack(
            redis_url="unix:///nowhere",
            http_url="http://127.0.0.1:1",
            grpc_endpoint="127.0.0.1:1",
            supervisor=supervisor,
        ),
    )


def test_a_crashed_stack_names_the_command_that_cleans_up(headway: Run, tmp_path: Path) -> None:
    stack_at(tmp_path / "stack", supervisor=ProcessId(pid=os.getpid(), start="before/1"))
    result = headway("status", "--state-dir", str(tmp_path / "stack"))
    assert result.returncode == 1
    assert "headway down" in result.stderr


def test_a_stack_that_starts_says_what_it_waits_for(headway: Run, tmp_path: Path) -> None:
    stack_at(tmp_path / "stack", supervisor=identify(os.getpid()))
    result = headway("status", "--state-dir", str(tmp_path / "stack"))
    assert "waiting for the controller" in result.stdout
