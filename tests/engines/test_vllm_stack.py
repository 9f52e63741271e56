"""A stack whose workers compute with vLLM beside one of ours: `make test-vllm`."""

import random
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from statistics import median

import httpx
import psutil
import pytest
import yaml

from tests.adapters import make_adapter
from tests.engines.completions import NUM_TOKENS, ask, body, killed_at, text_of, until_serving
from tests.integration.stack import RunningStack, wait_for

_UP_TIMEOUT_S = 600
_NUM_ARRIVALS = 100


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory, tiny: Path) -> Iterator[RunningStack]:
    """Two vLLM workers with 'tiny' (the last two), two of ours with the same checkpoint as 'own'."""
    options = (
        *(
            "--engine",
            "tiny=vllm",
            "--engine-args",
            "--enforce-eager --enable-lora --max-lora-rank 8",
            "--workers",
            "4",
            "--threads",
            "1",
        ),
        *("--dtype", "float32", "--max-model-len", "1024", "--max-num-seqs", "16", "--memory", "3GiB", "--no-profile"),
    )
    state_dir = tmp_path_factory.mktemp("stack")
    running = RunningStack(state_dir, {"tiny": tiny, "own": tiny}, *options, up_timeout_s=_UP_TIMEOUT_S).start()
    yield running
    running.stop()


def kill_busy(stack: RunningStack) -> None:
    """`kill -9` of the vLLM worker that runs something."""
    loads = stack.status()["fleet"]["groups"]
    stack.kill(next(load["worker_id"] for load in loads if load["model"] == "tiny" and load.get("num_running", 0)))


def test_both_engines_serve_side_by_side_and_the_status_tells_which(stack: RunningStack) -> None:
    assert text_of(ask(stack, model="tiny")) == text_of(ask(stack, model="own"))
    shown = stack.headway("status").stdout
    assert "vllm 0.32" in shown
    assert "vllm --enforce-eager --enable-lora" in " ".join(stack.headway("plan", "show").stdout.split())
    assert stack.metric("headway:engine_info") == 4


def test_what_vllm_lacks_is_refused_by_name(stack: RunningStack) -> None:
    refused = ask(stack, guided_regex="[ab]+", ignore_eos=False)
    assert refused.status_code == 400
    assert refused.json()["error"]["param"] == "guided"
    assert "vllm, which lacks guided" in refused.json()["error"]["message"]
    assert ask(stack, model="own", guided_regex="[ab]+", ignore_eos=False).status_code == 200


def test_prompts_that_begin_alike_meet_at_one_worker(stack: RunningStack) -> None:
    prompt = "one line, one signal, one long shared beginning of a prompt. " * 8
    first = ask(stack, prompt=f"{prompt} first", max_tokens=4).json()["usage"]

    def hits() -> bool:
        usage = ask(stack, prompt=f"{prompt} again", max_tokens=4).json()["usage"]
        return usage["prompt_tokens_details"]["cached_tokens"] >= 64

    assert first["prompt_tokens_details"]["cached_tokens"] == 0
    wait_for(hits)
    assert all(hits() for _ in range(6)), "another worker, whose cache does not have it, was asked"


def test_an_adapter_is_served_as_a_model_of_its_own(stack: RunningStack, tiny: Path, tmp_path: Path) -> None:
    adapter = make_adapter(tmp_path / "calm", tiny)
    before = {worker["pid"] for worker in stack.status()["controller"]["processes"] if worker["kind"] == "worker"}
    assert stack.headway("lora", "load", f"calm={adapter.directory}", "--model", "tiny").returncode == 0
    calm, plain = text_of(ask(stack, model="calm")), text_of(ask(stack, model="tiny"))
    assert calm != plain
    assert text_of(ask(stack, model="calm")) == calm
    names = [model["id"] for model in httpx.get(f"{stack.url}/v1/models", timeout=60).json()["data"]]
    assert "calm" in names
    assert "calm" in stack.headway("lora", "list").stdout
    assert stack.headway("lora", "load", f"calm={adapter.directory}", "--model", "tiny").returncode == 1
    assert stack.headway("lora", "unload", "calm").returncode == 0
    wait_for(lambda: ask(stack, model="calm").status_code == 404)
    after = {worker["pid"] for worker in stack.status()["controller"]["processes"] if worker["kind"] == "worker"}
    assert before == after, "nothing is loaded anew for an adapter"


def test_a_greedy_stream_survives_its_worker_token_for_token(stack: RunningStack) -> None:
    whole = text_of(ask(stack, max_tokens=NUM_TOKENS))
    engines = [each for each in psutil.process_iter(["name"]) if each.info["name"].startswith("VLLM::EngineCor")]
    text, error = killed_at(stack, lambda: kill_busy(stack))
    assert error is None
    assert text == whole
    wait_for(lambda: any(not process.is_running() for process in engines))  # the killed worker's engine process
    until_serving(stack, "tiny", num_workers=2)


def test_a_seeded_stream_ends_with_the_declared_error(stack: RunningStack) -> None:
    until_serving(stack, "tiny", num_workers=2)
    whole = text_of(ask(stack, max_tokens=NUM_TOKENS, temperature=1.0, seed=5))
    text, error = killed_at(stack, lambda: kill_busy(stack), temperature=1.0, seed=5)
    assert error is not None
    assert "lacks resume_seeded" in error["message"]
    assert whole.startswith(text)
    until_serving(stack, "tiny", num_workers=2)


def test_clients_that_leave_free_their_blocks(stack: RunningStack) -> None:
    with ThreadPoolExecutor(4) as pool:
        for future in [pool.submit(leave, stack) for _ in range(8)]:
            future.result()

    def is_idle() -> bool:
        loads = [load for load in stack.status()["fleet"]["groups"] if load["model"] == "tiny"]
        return all(
            load.get("num_running", 0) == load.get("num_waiting", 0) == 0
            and load["num_free_blocks"] == load["num_blocks"]
            for load in loads
        )

    wait_for(is_idle, timeout_s=60)


def leave(stack: RunningStack) -> None:
    asked = body(max_tokens=900, stream=True)
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=asked, timeout=60) as response:
        next(response.iter_lines())


def test_attainment_is_as_foretold_on_a_poisson_trace(stack: RunningStack) -> None:
    """The router has seen live steps by now, and foretells from those."""
    until_serving(stack, "tiny", num_workers=2)
    first_s, alone_s = (
        median(ask(stack, max_tokens=number).elapsed.total_seconds() for _ in range(5)) for number in (1, 33)
    )
    objective = {
        "x-headway-slo-ttft-ms": f"{4e3 * first_s:.1f}",
        "x-headway-slo-tpot-ms": f"{2e3 * (alone_s - first_s) / 32:.2f}",
    }
    rng = random.Random(34)
    before = attainment(stack)
    with ThreadPoolExecutor(64) as pool:
        asked = []
        for _ in range(_NUM_ARRIVALS):
            asked.append(pool.submit(ask, stack, headers=objective, max_tokens=33))
            time.sleep(rng.expovariate(1.5 / alone_s))
        statuses = Counter(each.result().status_code for each in asked)
    after = {name: count - before[name] for name, count in attainment(stack).items()}
    num_ended = after["num_met"] + after["num_missed"] + after["num_rejected"]
    assert num_ended == _NUM_ARRIVALS, statuses
    foretold = after["num_foretold_met"] / (after["num_foretold_met"] + after["num_foretold_missed"])
    measured = after["num_met"] / num_ended
    print(f"alone {first_s:.3f} and {alone_s:.3f} s; foretold {foretold:.1%}, measured {measured:.1%}: {after}")
    assert after["num_rejected"] <= _NUM_ARRIVALS // 2, "of whom nearly all are refused, both say nothing"
    assert round(100 * abs(measured - foretold), 6) <= 5, "points"


def attainment(stack: RunningStack) -> dict[str, int]:
    """Counts of the requests for 'tiny' that had an objective, by what came of them."""
    names = ("num_met", "num_missed", "num_rejected", "num_foretold_met", "num_foretold_missed")
    found = [each for each in stack.status()["fleet"]["attainments"] if each["model"] == "tiny"]
    return {name: sum(each.get(name, 0) for each in found) for name in names}


def test_both_engines_are_placed_from_one_file(stack: RunningStack, tiny: Path, tmp_path: Path) -> None:
    """The last: afterwards there are as many groups as the placement has."""
    models = "".join(
        f"- {{name: {name}, generate: {tiny}, prompt: 60, output: 20, ttft: 5 s, tpot: 1 s}}\n"
        for name in ("tiny", "own")
    )
    (tmp_path / "models.yaml").write_text(f"models:\n{models}")
    options = ("--workload", "poisson:rate=2", "--duration", "20", "--out", str(tmp_path / "plan.yaml"))
    files = ("--models", str(tmp_path / "models.yaml"), "--cluster", "live")
    planned = stack.headway("plan", "serve", *files, *options, timeout_s=300)
    assert planned.returncode == 0, planned.stderr
    problem = yaml.safe_load((tmp_path / "plan.yaml").read_text())["problem"]
    assert {model["name"]: model["engine"] for model in problem["models"]} == {"tiny": "vllm", "own": "headway"}
    clusters = [problem["cluster"], *problem["other_clusters"]]
    assert sorted((each["device"].partition("+")[2], each["num_devices"]) for each in clusters) == [
        ("", 2),
        ("vllm", 2),
    ]
    applied = stack.headway("apply", str(tmp_path / "plan.yaml"), "--yes", timeout_s=400)
    assert applied.returncode == 0, applied.stderr
    assert text_of(ask(stack, model="tiny")) == text_of(ask(stack, model="own"))
    engines = {each["name"]: each.get("engine", "") for each in stack.status()["plan"]["models"]}
    assert engines == {"tiny": "vllm", "own": "headway"}
