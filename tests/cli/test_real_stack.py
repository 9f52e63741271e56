"""The commands on a real stack: `headway up --detach` and everything after it."""

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import TypeAlias

import httpx
import psutil
import pytest

from headway.cli.process import is_alive
from headway.client import Client
from headway.client.stack import find_stack, read_stack
from tests.adapters import make_adapter
from tests.checkpoints import make_checkpoint
from tests.command import run_headway
from tests.profiler.exchange import STAGES

Command: TypeAlias = Callable[..., "subprocess.CompletedProcess[str]"]
_MODEL = "tiny"


def run(*arguments: str, state_dir: Path, stdin: str = "") -> "subprocess.CompletedProcess[str]":
    environment = os.environ | {"COLUMNS": "160"}
    return run_headway(*arguments, "--state-dir", str(state_dir), environment=environment, stdin=stdin, timeout_s=120)


def processes_of(state_dir: Path) -> list[psutil.Process]:
    """Everything that was told of the stack's state directory or of the Redis in it."""
    found = []
    for process in psutil.process_iter():
        with suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            told = [*process.cmdline(), process.environ().get("HEADWAY_REDIS_URL", "")]
            if any(str(state_dir) in part for part in told):
                found.append(process)
    return found


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("models") / _MODEL, "llama")


@pytest.fixture(scope="module")
def state_dir(checkpoint: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    directory = tmp_path_factory.mktemp("s")
    limits = ("--http-port", "0", "--max-body-bytes", "64KiB", "--max-concurrency", "1000")
    started = run("up", "--model", str(checkpoint), *limits, "--threads", "1", "--detach", state_dir=directory)
    assert started.returncode == 0, started.stderr
    yield directory
    run("down", "--grace-s", "1", state_dir=directory)


@pytest.fixture
def headway(state_dir: Path) -> Command:
    return lambda *arguments, stdin="": run(*arguments, state_dir=state_dir, stdin=stdin)


def test_status_is_ready_and_lists_every_kind_of_process(headway: Command) -> None:
    status = json.loads(headway("status", "--json").stdout)
    assert status["controller"]["ready"]
    kinds = {process["kind"] for process in status["controller"]["processes"]}
    assert kinds >= {"router", "kvcache", "gateway", "planner", "profiler", "worker"}
    assert [model["name"] for model in status["plan"]["models"]] == [_MODEL]
    assert "ready" in headway("status").stdout


def test_the_gateway_refuses_larger_bodies_than_it_was_told(state_dir: Path) -> None:
    body = {"model": _MODEL, "prompt": "x" * 65536}
    refused = httpx.post(f"{find_stack(state_dir).http_url}/v1/completions", json=body)
    assert refused.status_code == 413
    assert refused.json()["error"]["message"].startswith("The body is larger than 65536 bytes.")


def test_generate_is_greedy_and_repeatable(headway: Command) -> None:
    first, second = (headway("generate", "The time", "--temperature", "0", "--max-tokens", "8") for _ in range(2))
    assert first.returncode == 0
    assert first.stdout == second.stdout != "\n"


def test_json_counts_the_tokens(headway: Command) -> None:
    arguments = ("--max-tokens", "8", "--ignore-eos", "--logprobs", "2", "--request-id", "counted", "--json")
    answer = json.loads(headway("generate", "The time", *arguments).stdout)
    assert answer["request_id"] == "counted"
    assert answer["usage"]["completion_tokens"] == 8
    assert len(answer["choices"][0]["logprobs"]) == 8
    assert answer["choices"][0]["finish_reason"] == "length"


def test_chat_answers_each_line(headway: Command) -> None:
    result = headway("chat", "--max-tokens", "4", "--temperature", "0", stdin="Hello\nAgain\n")
    assert result.returncode == 0, result.stderr
    assert result.stdout.count("\n") >= 2


def test_the_sdk_finds_the_stack_by_its_directory(state_dir: Path) -> None:
    with Client(state_dir=state_dir) as client:
        assert [model.name for model in client.models()] == [_MODEL]
        assert client.generate_text([1, 2, 3], max_tokens=4, ignore_eos=True, temperature=0) != ""


def test_the_plan_is_shown_and_explained(headway: Command) -> None:
    assert _MODEL in headway("plan", "show").stdout
    explained = headway("plan", "explain")
    assert explained.returncode == 0, explained.stderr
    assert _MODEL in explained.stdout


def test_an_adapter_is_refused_by_the_name_of_the_feature_that_our_engine_lacks(
    headway: Command, checkpoint: Path, tmp_path: Path
) -> None:
    make_adapter(tmp_path / "calm", checkpoint)
    refused = headway("lora", "load", str(tmp_path / "calm"))
    assert refused.returncode == 1
    assert "The model 'tiny' runs on headway, which lacks lora." in " ".join(refused.stderr.split())
    assert "adapter_config.json is missing" in " ".join(headway("lora", "load", f"x={tmp_path}").stderr.split())
    assert json.loads(headway("lora", "list", "--json").stdout) == []
    assert "no adapter 'calm'" in headway("lora", "unload", "calm").stderr


def test_profiles_of_others_are_imported_listed_shown_and_exported(headway: Command, tmp_path: Path) -> None:
    file, exported = tmp_path / "stages.json", tmp_path / "exported.json"
    file.write_text(json.dumps(STAGES))
    imported = headway("profile", "import", str(file), "--hardware", "A100-40", "--json")
    assert imported.returncode == 0, imported.stderr
    ids = [profile["profile_id"] for profile in json.loads(imported.stdout)]
    listed = json.loads(headway("profile", "list", "--json").stdout)
    assert set(ids) <= {profile["profile_id"] for profile in listed}
    assert "imported from: made up" in headway("profile", "show", ids[1]).stdout
    assert json.loads(headway("profile", "show", ids[1], "--json").stdout)["weight_bytes"] == [100, 200]
    assert headway("profile", "export", *ids, "--output", str(exported)).returncode == 0
    assert json.loads(exported.read_text())["models"] == STAGES["models"]
    file.write_text(json.dumps(STAGES).replace("0.75", "NaN"))
    refused = headway("profile", "import", str(file))
    assert refused.returncode == 1
    assert "models.toy.configs.pp2_op4.batch.2.stage_latency_s[1] should be finite" in refused.stderr


def test_profiles_are_listed(headway: Command) -> None:
    result = headway("profile", "list", "--json")
    assert result.returncode == 0, result.stderr
    assert isinstance(json.loads(result.stdout), list)


def test_logs_of_all_processes_are_merged(headway: Command) -> None:
    lines = [json.loads(line) for line in headway("logs", "--json").stdout.splitlines() if line.startswith("{")]
    assert len({line["service"] for line in lines}) > 3
    assert [line["time"] for line in lines] == sorted(line["time"] for line in lines)


def test_a_second_stack_runs_beside_it_in_the_foreground_until_ctrl_c(
    state_dir: Path, checkpoint: Path, tmp_path: Path
) -> None:
    command = [sys.executable, "-m", "headway.cli", "up", "--model", f"other={checkpoint}"]
    options = ["--port", "0", "--threads", "1", "--no-profile", "--api-key", "secret", "--state-dir", str(tmp_path)]
    with subprocess.Popen([*command, *options], stdout=subprocess.PIPE, text=True) as second:
        assert second.stdout is not None
        assert any("Ctrl-C stops it" in line for line in second.stdout)
        with Client(state_dir=tmp_path) as client:
            assert [model.name for model in client.models()] == ["other"]
        second.send_signal(signal.SIGINT)
        assert second.wait(timeout=60) == 0
    assert processes_of(tmp_path) == []
    assert read_stack(tmp_path) is None
    assert json.loads(run("status", "--json", state_dir=state_dir).stdout)["controller"]["ready"]


def test_a_stack_stays_whose_reader_of_what_was_printed_has_gone(checkpoint: Path, tmp_path: Path) -> None:
    command = [sys.executable, "-m", "headway.cli", "up", "--model", str(checkpoint), "--port", "0", "--threads", "1"]
    with subprocess.Popen([*command, "--detach", "--state-dir", str(tmp_path)], stdout=subprocess.PIPE) as starting:
        assert starting.stdout is not None
        starting.stdout.close()
    with Client(state_dir=tmp_path) as client:
        assert client.status().controller.ready
    assert run("down", state_dir=tmp_path).returncode == 0


def test_down_ends_what_a_killed_supervisor_left(checkpoint: Path, tmp_path: Path) -> None:
    assert run("up", "--model", str(checkpoint), "--port", "0", "--detach", state_dir=tmp_path).returncode == 0
    supervisor = find_stack(tmp_path).supervisor
    os.kill(supervisor.pid, signal.SIGKILL)
    while is_alive(supervisor):
        time.sleep(0.02)
    assert run("generate", "The", "--max-tokens", "2", state_dir=tmp_path).returncode == 0
    refused = run("up", "--model", str(checkpoint), "--port", "0", "--detach", state_dir=tmp_path)
    assert "lost its supervisor" in refused.stderr
    assert run("down", state_dir=tmp_path).returncode == 0
    assert processes_of(tmp_path) == []
    assert run("down", state_dir=tmp_path).returncode == 1


def test_a_checkpoint_that_does_not_load_is_told_and_leaves_nothing(checkpoint: Path, tmp_path: Path) -> None:
    broken = tmp_path / "broken"
    broken.mkdir()
    for path in checkpoint.iterdir():
        (broken / path.name).write_bytes(path.read_bytes()[: 100 if path.suffix == ".safetensors" else None])
    directory = tmp_path / "state"
    result = run("up", "--model", str(broken), "--port", "0", "--detach", state_dir=directory)
    assert result.returncode == 1
    assert "error:" in result.stderr
    assert processes_of(directory) == []
    assert read_stack(directory) is None
