"""A stack with `--tp 2`, in which vLLM splits each layer over the devices of one worker (the last two), and ours over
two workers: `make test-vllm`."""

import signal
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest

from tests.adapters import make_adapter
from tests.engines.completions import NUM_TOKENS, ask, killed_at, text_of, until_serving
from tests.integration.stack import RunningStack, wait_for

_UP_TIMEOUT_S = 600


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[RunningStack]:
    options = (
        *("--engine", "tiny=vllm", "--engine-args", "--enforce-eager --enable-lora --max-lora-rank 8"),
        *("--tp", "2", "--threads", "1", "--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16"),
        *("--workers", "4", "--memory", "3GiB", "--no-profile"),
    )
    state_dir = tmp_path_factory.mktemp("stack")
    running = RunningStack(state_dir, {"tiny": tiny, "own": tiny}, *options, up_timeout_s=_UP_TIMEOUT_S).start()
    yield running
    running.stop()


def ranks(stack: RunningStack, worker: str) -> list[psutil.Process]:
    """The processes of vLLM that compute for a worker."""
    inner = psutil.Process(stack.pid(worker)).children(recursive=True)
    return [process for process in inner if process.name().startswith("VLLM::Worker_TP")]


def test_layers_are_split_over_the_devices_of_one_worker(stack: RunningStack) -> None:
    assert text_of(ask(stack, model="tiny", max_tokens=100)) == text_of(ask(stack, model="own", max_tokens=100))
    assert [len(ranks(stack, worker)) for worker in ("worker-2", "worker-3")] == [2, 2]
    shown = " ".join(stack.headway("plan", "show").stdout.split())
    assert "on worker-2 (group-2), tp 2 inside" in shown
    assert shown.count("memory of device 1") == 2
    assert "on group-0, tp 2: worker-0, worker-1; the first leads" in shown
    status = stack.headway("status").stdout
    assert "2 x " in status
    assert status.count("1 threads each") == 2
    loads = [each for each in stack.status()["fleet"]["groups"] if each["model"] == "tiny"]
    planned = [each["num_blocks"] for each in stack.status()["plan"]["assignments"] if each["model"] == "tiny"]
    assert [each["num_blocks"] for each in loads] == [each["num_free_blocks"] for each in loads] == planned


def test_an_adapter_is_split_too(stack: RunningStack, tiny: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "calm", tiny)
    assert stack.headway("lora", "load", f"calm={adapter.directory}", "--model", "tiny").returncode == 0
    calm = text_of(ask(stack, model="calm"))
    assert calm != text_of(ask(stack, model="tiny"))
    assert calm == text_of(ask(stack, model="calm"))


def test_a_stream_survives_a_device_of_its_worker(stack: RunningStack) -> None:
    whole = text_of(ask(stack, max_tokens=NUM_TOKENS))
    killed: list[psutil.Process] = []

    def kill() -> None:
        loads = stack.status()["fleet"]["groups"]
        busy = next(each["worker_id"] for each in loads if each["model"] == "tiny" and each.get("num_running", 0))
        killed.extend([psutil.Process(stack.pid(busy)), *ranks(stack, busy)])
        killed[-1].send_signal(signal.SIGKILL)

    text, error = killed_at(stack, kill)
    assert error is None
    assert text == whole
    wait_for(lambda: not any(process.is_running() for process in killed))
    until_serving(stack, "tiny", num_workers=2)


def test_a_killed_worker_takes_all_processes_of_its_engine_along(stack: RunningStack) -> None:
    inner = psutil.Process(stack.pid("worker-2")).children(recursive=True)
    stack.kill("worker-2")
    wait_for(lambda: not any(process.is_running() for process in inner))
    until_serving(stack, "tiny", num_workers=2)
    assert text_of(ask(stack, model="tiny")) == text_of(ask(stack, model="own"))
