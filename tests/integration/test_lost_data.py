"""Redis loses all that it had while a stack serves: what people have asked for is there again, and nothing stops."""

import os
import signal
import threading
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from redis import Redis

from headway.core.errors import UnavailableError
from tests.integration.emulation import write_model
from tests.integration.stack import RunningStack, wait_for


@pytest.fixture
def emulated(tmp_path: Path) -> Iterator[RunningStack]:
    models = {"tiny": write_model(tmp_path / "model")}
    running = RunningStack(tmp_path / "state", models, "--emulate", "2xV100", "--no-profile").start()
    yield running
    running.stop()


def make_key(stack: RunningStack) -> str:
    made = stack.headway("key", "create")
    assert made.returncode == 0, made.stderr
    return made.stdout.split()[0]


class Client:
    """Asks again and again, from a thread, and counts what it is answered.

    Attributes:
        answers: with its key.
        unknown_answers: without one.
    """

    def __init__(self, stack: RunningStack, key: str) -> None:
        self.answers: Counter[int] = Counter()
        self.unknown_answers: Counter[int] = Counter()
        self._url = f"{stack.url}/v1/completions"
        self._headers = {"authorization": f"Bearer {key}"}
        self._is_over = threading.Event()
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        body = {"model": "tiny", "prompt": "a b c", "max_tokens": 5}
        with httpx.Client(timeout=60) as client:
            while not self._is_over.is_set():
                self.answers[client.post(self._url, json=body, headers=self._headers).status_code] += 1
                self.unknown_answers[client.post(self._url, json=body).status_code] += 1

    def end(self) -> Counter[int]:
        self._is_over.set()
        self._thread.join()
        return self.answers


def test_all_that_was_acknowledged_is_there_again_and_no_request_fails(emulated: RunningStack) -> None:
    first = make_key(emulated)
    models = f"{emulated.url}/v1/models"
    wait_for(lambda: httpx.get(models).status_code == 401)
    before = emulated.status()["controller"]
    client = Client(emulated, first)
    wait_for(lambda: client.answers[200] > 3)
    redis = Redis(unix_socket_path=emulated.stack.redis_url.removeprefix("unix://"), decode_responses=True)
    with redis:
        epoch = redis.get("headway:controller-epoch")
        redis.flushall()
        second = make_key(emulated)
        names = ("kept", "deployment", "plan-current", "controller-lease", "process:gateway", "member:router:router")
        wait_for(lambda: redis.exists(*(f"headway:{name}" for name in names)) == len(names), timeout_s=60)
        assert redis.get("headway:controller-epoch") == epoch
        assert redis.hlen("headway:api-keys") == 2
    answered = client.answers[200]
    wait_for(lambda: client.answers[200] > answered + 3)
    assert set(client.end()) == {200}
    assert set(client.unknown_answers) == {401}, "at no time is it open to everybody"
    for key in (first, second):
        wait_for(lambda: httpx.get(models, headers={"authorization": f"Bearer {key}"}).status_code == 200)  # noqa: B023

    after = emulated.status()["controller"]
    assert after["plan_id"] == before["plan_id"]
    runs = [{each["name"]: each["pid"] for each in status["processes"]} for status in (before, after)]
    assert runs[0] == runs[1]


def test_a_stack_whose_controller_dies_with_redis_data_begins_anew_with_what_was_acknowledged(
    emulated: RunningStack,
) -> None:
    """Nobody is left who knows which processes run: they are ended and started again. Plans and keys are there."""
    key = make_key(emulated)
    models = f"{emulated.url}/v1/models"
    wait_for(lambda: httpx.get(models).status_code == 401)
    before = emulated.status()["controller"]
    killed = emulated.stack.controller
    assert killed is not None
    with Redis(unix_socket_path=emulated.stack.redis_url.removeprefix("unix://")) as redis:
        os.kill(killed.pid, signal.SIGKILL)
        redis.flushall()

    def is_back() -> bool:
        assert httpx.get(models, timeout=60).status_code in (401, 503), "at no time is it open to everybody"
        controller = emulated.stack.controller
        is_written = any("is written again" in log.read_text() for log in logs)
        return controller not in (None, killed) and is_written

    def is_ready() -> bool:
        try:
            return bool(emulated.status()["controller"]["ready"])
        except UnavailableError:  # the next controller has not begun to serve
            return False

    logs = [emulated.state_dir / "logs" / f"{name}.log" for name in ("supervisor", "controller")]
    wait_for(is_back)
    body, headers = {"model": "tiny", "prompt": "a b c", "max_tokens": 5}, {"authorization": f"Bearer {key}"}
    url = f"{emulated.url}/v1/completions"
    wait_for(lambda: httpx.post(url, json=body, headers=headers, timeout=60).status_code == 200)
    wait_for(is_ready)
    assert httpx.get(models).status_code == 401
    after = emulated.status()["controller"]
    assert [each["name"] for each in after["processes"]] == [each["name"] for each in before["processes"]]


def test_values_that_were_changed_are_as_they_were_or_made_anew_and_no_request_fails(emulated: RunningStack) -> None:
    """A bit of the disk, or a hand: in what is kept, in leases, and in what is known of processes. Then the controller
    dies, so that the next one reads it all."""
    key = make_key(emulated)
    wait_for(lambda: httpx.get(f"{emulated.url}/v1/models").status_code == 401)
    before = emulated.status()["controller"]
    client = Client(emulated, key)
    wait_for(lambda: client.answers[200] > 3)
    killed = emulated.stack.controller
    assert killed is not None
    with Redis(unix_socket_path=emulated.stack.redis_url.removeprefix("unix://")) as redis:
        kept = {name: redis.get(f"headway:{name}") for name in ("deployment", f"plan:{before['plan_id']}")}
        os.kill(killed.pid, signal.SIGKILL)
        for name, value in kept.items():
            assert value is not None
            redis.set(f"headway:{name}", value.replace(b"tiny", b"tinx"))
        redis.set("headway:plan-current", "plan-x")
        (key_id,) = redis.hkeys("headway:api-keys")
        redis.hset("headway:api-keys", key_id, b"\xff\xfe")
        redis.set("headway:process:kvcache", b"{\xff")
        redis.set("headway:member:router:router", b'{"kind": 3}')
        redis.set("headway:controller-lease", "strange")

        def is_restored() -> bool:
            assert httpx.get(f"{emulated.url}/v1/models", timeout=60).status_code == 401
            return all(redis.get(f"headway:{name}") == value for name, value in kept.items())

        wait_for(is_restored, timeout_s=60)
        wait_for(lambda: emulated.status()["controller"]["ready"], timeout_s=60)
        replaced = emulated.stack.controller
        redis.set("headway:deployment", "{}")  # while the controller lives
        wait_for(is_restored, timeout_s=60)
    answered = client.answers[200]
    wait_for(lambda: client.answers[200] > answered + 3)
    assert set(client.end()) == {200}
    assert set(client.unknown_answers) == {401}, "at no time is it open to everybody"
    after = emulated.status()["controller"]
    assert after["plan_id"] == before["plan_id"]
    pids = [{each["name"]: each["pid"] for each in status["processes"]} for status in (before, after)]
    changed = {name for name, pid in pids[0].items() if pids[1][name] != pid}
    assert changed == {"controller", "kvcache"}, "whose record was lost is started again"
    assert emulated.stack.controller == replaced, "it ended once, and not again and again"
    assert after["faults"] == [], "what was set aside is there anew"


def test_a_deployment_that_was_spoilt_where_no_copy_is_left_is_named_and_the_controller_goes_on(
    emulated: RunningStack,
) -> None:
    before = emulated.status()["controller"]
    killed = emulated.stack.controller
    assert killed is not None
    client = Client(emulated, "none")
    with Redis(unix_socket_path=emulated.stack.redis_url.removeprefix("unix://")) as redis:
        os.kill(killed.pid, signal.SIGKILL)
        (emulated.state_dir / "redis" / "kept.json").unlink()
        redis.set("headway:deployment", '{"models": [')
        wait_for(lambda: emulated.stack.controller not in (None, killed))
        wait_for(lambda: emulated.status()["controller"]["faults"] != [])
    after = emulated.status()["controller"]
    assert after["faults"] == ["headway:deployment could not be read and was set aside"]
    assert after["plan_id"] == before["plan_id"]
    pids = [{each["name"]: each["pid"] for each in status["processes"]} for status in (before, after)]
    assert {name for name, pid in pids[0].items() if pids[1][name] != pid} == {"controller"}
    wait_for(lambda: client.answers[200] > 3)
    assert set(client.end()) == {200}
