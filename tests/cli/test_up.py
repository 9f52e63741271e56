"""What `headway up` refuses before it starts anything."""

import os
import socket
from pathlib import Path

import pytest
import typer

from headway.cli.counts import parse_counts
from headway.cli.process import identify
from headway.cli.worker_count import count_workers
from headway.client.stack import ProcessId, Stack, write_stack
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import EngineLimits, ModelDeployment
from tests.cli.conftest import Run
from tests.command import run_headway
from tests.integration.emulation import write_model
from tests.specs import llama_spec


def test_a_missing_model_is_named(headway: Run, tmp_path: Path) -> None:
    result = headway("up", "--model", str(tmp_path / "nothing"))
    assert result.returncode == 1
    assert f"There is no directory {tmp_path}/nothing" in result.stderr


def test_files_of_tls_that_cannot_be_used_are_named(tmp_path: Path) -> None:
    model = write_model(tmp_path / "model")
    arguments = ("up", "--emulate", "1xV100", "--model", str(model), "--port", "0", "--state-dir", f"{tmp_path}/state")
    given = {"HEADWAY_TLS_CA": f"{tmp_path}/ca.pem"}
    both = given | {f"HEADWAY_TLS_{name}": f"{tmp_path}/{name}.pem" for name in ("CERT", "KEY")}
    for variables, fault in ((given, "HEADWAY_TLS_CERT is not set"), (both, f"{tmp_path}/ca.pem cannot be read")):
        result = run_headway(*arguments, environment=os.environ | {"COLUMNS": "200"} | variables)
        assert result.returncode == 1
        assert fault in result.stderr


def test_a_split_that_the_model_does_not_allow_is_refused_with_the_nearest(headway: Run, checkpoint: Path) -> None:
    result = headway("up", "--model", str(checkpoint), "--tp", "5")
    assert result.returncode == 1
    assert "4 heads over 4 KV heads cannot be split in 5" in result.stderr
    assert "Use --tp 4, which needs 4 workers." in result.stderr


def test_fewer_workers_than_the_groups_take_are_refused(headway: Run, checkpoint: Path) -> None:
    result = headway("up", "--model", str(checkpoint), "--tp", "4", "--workers", "3")
    assert "tp 4 needs 4 workers, not 3" in result.stderr
    assert "Give --workers 4 or more, or --tp 3." in result.stderr


def test_options_of_groups_are_taken_together_and_refused_together(headway: Run, checkpoint: Path) -> None:
    options = ("--tp", "2", "--cp", "2", "--cp-ffn", "tensor", "--stage-layers", "1,2")
    result = headway("up", "--model", str(checkpoint), *options)
    assert result.returncode == 1
    assert "The stages 1,2 are not 2 stages of 2 layers together." in result.stderr
    hint = "Use --tp 2 --pp 2 --cp 2 --stage-layers 1,1 --cp-ffn tensor, which needs 8 workers."
    assert hint in " ".join(result.stderr.split())


def test_an_answer_overhead_that_is_no_duration_is_wrong_usage(headway: Run, checkpoint: Path) -> None:
    for wrong in ("soon", "-5ms", "0ms"):
        result = headway("up", "--model", str(checkpoint), "--answer-overhead", wrong)
        assert result.returncode == 2, wrong
        assert "--answer-overhead" in result.stderr


def test_stages_that_are_no_numbers_are_wrong_usage(headway: Run, checkpoint: Path) -> None:
    result = headway("up", "--model", str(checkpoint), "--stage-layers", "1,x")
    assert result.returncode == 2
    assert "--stage-layers" in result.stderr
    assert parse_counts("3, 5") == (3, 5)
    for text in ("0,2", "1,", "", "-1,3", "1.5,2"):
        with pytest.raises(typer.BadParameter, match="separated by commas"):
            parse_counts(text)


@pytest.mark.parametrize(
    ("limits", "reason", "hint"),
    [
        (EngineLimits(pp=3), "pp is 3, and the model has 2 layers.", "Use --pp 2, which needs 2 workers."),
        (EngineLimits(pp=1, stage_layers=(1, 1)), "are not 1 stages of 2 layers", "Use one worker."),
        (EngineLimits(tp=2, cp_ffn="tensor"), "takes cp 2 or more", "Give --cp 2 or more, or leave --cp-ffn out."),
        (EngineLimits(tp=2, cp=3, cp_ffn="tensor"), "cannot be split in 6", "Use --tp 2 --cp 3, which needs 6"),
    ],
)
def test_groups_that_cannot_be_are_refused_with_the_nearest_that_can(
    limits: EngineLimits, reason: str, hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=reason) as caught:
        count_workers(None, (make_deployment("a"),), limits)
    assert hint in caught.value.hint


def test_too_few_workers_are_refused_with_the_nearest_group_that_all_models_allow() -> None:
    models = (make_deployment("a"), make_deployment("b", num_layers=1))
    with pytest.raises(InvalidArgumentError, match="cp 4 needs 4 workers, not 3") as caught:
        count_workers(3, models, EngineLimits(cp=4))
    assert caught.value.hint == "Give --workers 4 or more, or --cp 3."
    with pytest.raises(InvalidArgumentError, match="pp is 2, and the model has 1 layers"):
        count_workers(5, models, EngineLimits(pp=2))


def test_as_many_workers_are_started_as_all_axes_take() -> None:
    models = (make_deployment("a"), make_deployment("b"))
    for limits, num_workers in (
        (EngineLimits(), 2),
        (EngineLimits(pp=2), 4),
        (EngineLimits(tp=2, pp=2, cp=2), 16),
    ):
        assert count_workers(None, models, limits) == num_workers
        assert count_workers(num_workers + 1, models, limits) == num_workers + 1
        num_ranks = limits.parallel.num_ranks  # a group takes several models
        assert count_workers(num_ranks, models, limits) == num_ranks
        with pytest.raises(InvalidArgumentError, match=f"needs {num_ranks} workers"):
            count_workers(num_ranks - 1, models, limits)


def test_workers_are_as_many_as_have_a_role() -> None:
    models, limits = (make_deployment("a"),), EngineLimits(prefill_workers=1, decode_workers=2)
    assert count_workers(None, models, limits) == count_workers(3, models, limits) == 3
    with pytest.raises(InvalidArgumentError, match="are 3 workers together, not 4"):
        count_workers(4, models, limits)
    with pytest.raises(InvalidArgumentError, match="one of each"):
        count_workers(None, models, EngineLimits(decode_workers=2))


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
    orphaned = _stack(supervisor=ProcessId(pid=os.getpid(), start="before/1"), controller=identify(os.getpid()))
    write_stack(tmp_path, orphaned)
    result = headway("up", "--model", str(checkpoint), "--state-dir", str(tmp_path))
    assert result.returncode == 1
    assert "lost its supervisor" in result.stderr


def test_a_state_directory_that_cannot_be_made_is_refused(headway: Run, checkpoint: Path, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    result = headway("up", "--model", str(checkpoint), "--state-dir", str(tmp_path / "file" / "state"))
    assert result.returncode == 1
    assert "--state-dir" in result.stderr


def make_deployment(name: str, *, num_layers: int = 2) -> ModelDeployment:
    spec = llama_spec(
        hidden_size=16, num_layers=num_layers, num_kv_heads=4, head_dim=4, intermediate_size=32, max_position=64
    )
    return ModelDeployment(name=name, directory=f"/models/{name}", spec=spec)


def _stack(*, supervisor: ProcessId, controller: ProcessId | None = None) -> Stack:
    return Stack(
        redis_url="unix:///nowhere",
        http_url="http://127.0.0.1:8000",
        grpc_endpoint="127.0.0.1:9000",
        supervisor=supervisor,
        controller=controller,
    )
