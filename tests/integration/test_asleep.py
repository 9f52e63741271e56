"""A stack of one emulated device with two models, one of which is unloaded while nobody asks for it."""

from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import httpx
import pytest

from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for

NUM_CLIENTS = 6


@pytest.fixture(scope="module")
def stack(tmp_path_factory: pytest.TempPathFactory) -> Iterator[RunningStack]:
    directory = tmp_path_factory.mktemp("asleep")
    model = write_model(directory / "model")
    options = ("--emulate", "1xV100", "--unload-idle", "rare=2s")
    running = RunningStack(directory / "state", {"often": model, "rare": model}, *options).start()
    yield running
    running.stop()


def _complete(stack: RunningStack, model: str) -> str:
    body = {"model": model, "prompt": "two trains", "max_tokens": 8, "temperature": 0}
    response = httpx.post(f"{stack.url}/v1/completions", json=body, timeout=60)
    assert response.status_code == 200, response.text
    return str(response.json()["choices"][0]["text"])


def _sleeps(stack: RunningStack) -> bool:
    controller = stack.status()["controller"]
    loaded = {model for worker in controller["workers"] for model in worker["models"]}
    return bool(controller["asleep"] == ["rare"] and loaded == {"often"})


def test_it_sleeps_when_nobody_asks_and_answers_all_who_come_then(stack: RunningStack) -> None:
    texts = {model: _complete(stack, model) for model in ("often", "rare")}
    wait_for(lambda: _sleeps(stack), timeout_s=60)
    assert "asleep" in stack.headway("status").stdout
    assert httpx.get(f"{stack.url}/ready").status_code == 200
    names = {model["id"] for model in httpx.get(f"{stack.url}/v1/models").json()["data"]}
    assert names == {"often", "rare"}
    with ThreadPoolExecutor(NUM_CLIENTS) as pool:
        answers = list(pool.map(lambda number: _complete(stack, ("rare", "often")[number % 2]), range(NUM_CLIENTS)))
    assert answers == [texts["rare"], texts["often"]] * (NUM_CLIENTS // 2)
    assert stack.status()["controller"]["asleep"] == []


def test_whoever_takes_over_from_the_controller_knows_who_sleeps(stack: RunningStack) -> None:
    wait_for(lambda: _sleeps(stack), timeout_s=60)
    text = _complete(stack, "often")
    stack.kill("controller")
    wait_for(lambda: _sleeps(stack), timeout_s=60)
    assert _complete(stack, "often") == text
    assert _complete(stack, "rare")
