"""A request that takes workers down, on workers that are real processes: it ends, and nobody else does."""

import asyncio
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from types import SimpleNamespace

import httpx
import openai
import pytest
import redis

from headway.core.errors import InvalidArgumentError, UnavailableError
from headway.core.infer import InferSequence
from headway.core.request import GenerationRequest, SamplingParams
from headway.core.slo import Slo
from headway.core.suspicion import Suspicion
from headway.gateway.client import InferClient
from headway.gateway.errors import WorkerDiedError
from headway.gateway.infer.job import InferJob
from headway.gateway.infer.run import Inferrer
from headway.gateway.lease import Lease, PlaceRequest, Release
from headway.gateway.quarantine import Quarantine, Trial, generation_fingerprint
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.quarantine import QuarantineStore
from headway.store.redis import Database
from tests.forked import ForkedProcess
from tests.gateway.scripted_worker import DEADLY_ID
from tests.gateway.test_resumption import kill, worker_process
from tests.gateway.world import MODEL, Gateway, World, wait_for

NEIGHBOUR = {"model": MODEL, "prompt": [20, 21, 22, 23], "max_tokens": 150, "temperature": 0.0}


def deadly(position: int) -> dict[str, object]:
    """A request whose worker dies when it comes to that token of the output."""
    prompt = [30 + position] * position + [DEADLY_ID]
    return {"model": MODEL, "prompt": prompt, "max_tokens": 20, "temperature": 0.0, "seed": 1}


def start_workers(stack: ExitStack, world: World, num: int) -> list[ForkedProcess]:
    """In the order in which the router takes them; the last one is the world's own."""
    found = [stack.enter_context(worker_process()) for _ in range(num)]
    endpoints = {f"worker-{9 - index}": endpoint for index, (_, endpoint) in enumerate(found)}
    world.router.workers = {**endpoints, "worker-0": world.worker_endpoint}
    return [process for process, _ in found]


@pytest.mark.parametrize(("position", "num_dead"), [(0, 2), (7, 3)])
def test_a_request_that_takes_workers_down_ends_and_its_neighbours_go_on(
    gateway: Gateway, client: openai.OpenAI, world: World, position: int, num_dead: int
) -> None:
    """One that kills at once is told by its second worker, one that kills later by its third."""
    expected = client.completions.create(**NEIGHBOUR).choices[0].text
    ask = lambda: client.completions.create(**NEIGHBOUR).choices[0].text  # noqa: E731
    with ExitStack() as stack:
        processes = start_workers(stack, world, 4)
        with ThreadPoolExecutor(6) as pool:
            neighbours = [pool.submit(ask) for _ in range(6)]
            refused = httpx.post(f"{gateway.url}/v1/completions", json=deadly(position), timeout=60)
        assert refused.status_code == 400
        assert "two workers died while they computed it" in refused.json()["error"]["message"]
        assert [process.poll() is not None for process in processes].count(True) == num_dead
        again = httpx.post(f"{gateway.url}/v1/completions", json=deadly(position) | {"seed": 2}, timeout=60)
        assert again.status_code == 400
        assert [process.poll() is not None for process in processes].count(True) == num_dead
    assert [each.result() for each in neighbours] == [expected] * 6


def test_one_that_is_tried_begins_at_once_whatever_its_objectives_leave_it(client: openai.OpenAI, world: World) -> None:
    """While it waits in line it would be blamed for what others do."""
    with ExitStack() as stack:
        start_workers(stack, world, 1)
        client.completions.create(**deadly(0) | {"max_tokens": 22}, extra_body={"slo_ms": 60_000})
    (tried,) = [each for each in world.worker.submitted if each.sampling.max_tokens == 22]
    assert tried.slack_s == 0


def test_gateways_tell_each_other_of_requests_that_take_workers_down(
    gateway: Gateway, client: openai.OpenAI, world: World
) -> None:
    """What one has sealed no other tries, not even one that has only just started."""
    expected = client.completions.create(**NEIGHBOUR).choices[0].text
    database = redis.Redis.from_url(world.redis_url, decode_responses=True)
    num_sealed = lambda: database.zcard(f"{world.namespace}:quarantine")  # noqa: E731
    with ExitStack() as stack:
        processes = start_workers(stack, world, 3)
        num_dead = lambda: [process.poll() is not None for process in processes].count(True)  # noqa: E731
        known = num_sealed()
        body = deadly(0) | {"max_tokens": 21}  # another one than those that are known already
        assert httpx.post(f"{gateway.url}/v1/completions", json=body, timeout=60).status_code == 400
        wait_for(lambda: num_dead() == 2 and num_sealed() == known + 1)
        other = stack.enter_context(world.gateway())
        assert httpx.post(f"{other.url}/v1/completions", json=body, timeout=60).status_code == 400
        assert num_dead() == 2, "the other one has heard of it and tries it on no worker"
        texts = [
            httpx.post(f"{each.url}/v1/completions", json=NEIGHBOUR, timeout=60).json()["choices"][0]["text"]
            for each in (gateway, other)
        ]
        assert texts == [expected] * 2
        stored = database.zrange(f"{world.namespace}:quarantine", 0, -1)
        assert all(len(fingerprint) == 64 for fingerprint in stored), "hashes, and nothing of what was asked"


REQUEST = GenerationRequest(
    request_id="a", model="m", prompt_token_ids=(1, 2), sampling=SamplingParams(temperature=0.5, seed=3)
)


def sampled(**sampling: object) -> GenerationRequest:
    return GenerationRequest(
        request_id="b",
        model="m",
        prompt_token_ids=(1, 2),
        sampling=SamplingParams(**{"temperature": 0.5, **sampling}),  # type: ignore[arg-type]
    )


def trial_of(quarantine: Quarantine, request: GenerationRequest = REQUEST) -> Trial:
    return Trial(quarantine, model="m", fingerprint=lambda: generation_fingerprint(request))


def seal(quarantine: Quarantine) -> None:
    quarantine.note(generation_fingerprint(REQUEST), Suspicion.SEALED)


async def test_quarantine_ends_after_an_hour_and_holds_for_the_same_request_only() -> None:
    now_s = 0.0
    quarantine = Quarantine(lambda: now_s)
    await trial_of(quarantine).begin()
    seal(quarantine)
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        await trial_of(quarantine, sampled(seed=4)).begin()
    await trial_of(quarantine, sampled(temperature=0.6)).begin()
    now_s = 3599.0
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        await trial_of(quarantine).begin()
    now_s = 3600.0
    await trial_of(quarantine).begin()


async def test_suspects_are_tried_one_at_a_time_and_the_one_that_is_well_is_none_any_more() -> None:
    quarantine = Quarantine(lambda: 0.0)
    trials = [trial_of(quarantine, sampled(top_k=number + 1)) for number in range(3)]
    for trial in trials:
        await trial.begin()
        trial.note_death()
    await trials[0].begin()
    others = [asyncio.create_task(trial.begin()) for trial in trials[1:]]
    await asyncio.sleep(0)
    assert not any(task.done() for task in others)
    trials[0].note_output()
    await others[0]
    assert not others[1].done()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        trials[1].note_death()
    await others[1]
    trials[2].end()
    await trials[0].begin()
    trials[0].note_death()  # a suspect again, since nothing came of the worker where it was


async def test_suspects_that_ask_the_same_all_go_on_once_something_has_come_of_one(database: Database) -> None:
    """Each would else wait for the first token of those before it, at one gateway after the other."""
    first, second = (Quarantine(lambda: 0.0, QuarantineStore(database)) for _ in range(2))
    trials = [trial_of(each) for each in (first, first, first, second, second)]
    for trial in trials:
        trial.note_death()
    await first.catch_up()
    await second.catch_up()
    await trials[0].begin()
    waiting = [asyncio.create_task(trial.begin()) for trial in trials[1:]]
    await asyncio.sleep(0)
    assert not any(task.done() for task in waiting)
    trials[0].note_output()
    await asyncio.wait_for(asyncio.gather(*waiting[:2]), timeout=30)
    await first.catch_up()
    await second.catch_up()
    await asyncio.wait_for(asyncio.gather(*waiting[2:]), timeout=30)
    await second.catch_up()


async def test_one_that_leaves_while_it_waits_for_its_turn_takes_none() -> None:
    quarantine = Quarantine(lambda: 0.0)
    first, second, third = (trial_of(quarantine, sampled(top_k=number + 1)) for number in range(3))
    for trial in (first, second, third):
        trial.note_death()
    await first.begin()
    waiting = asyncio.create_task(second.begin())
    await asyncio.sleep(0)
    waiting.cancel()
    await asyncio.gather(waiting, return_exceptions=True)
    second.end()
    first.end()
    await asyncio.wait_for(third.begin(), timeout=10)


async def test_a_suspect_is_one_at_every_gateway_until_it_is_cleared_at_one(database: Database) -> None:
    """A client that leaves when its worker has died, and asks again elsewhere, is not let start anew."""
    first, second = (Quarantine(lambda: 0.0, QuarantineStore(database)) for _ in range(2))
    trial_of(first).note_death()
    await first.catch_up()
    await second.catch_up()
    elsewhere = trial_of(second)
    await elsewhere.begin()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        elsewhere.note_death()
    await second.catch_up()
    await first.catch_up()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        await trial_of(first).begin()

    other = sampled(top_k=7)
    trial_of(first, other).note_death()
    await first.catch_up()
    await second.catch_up()
    cleared = trial_of(second, other)
    await cleared.begin()
    cleared.note_output()
    await second.catch_up()
    await first.catch_up()
    again = trial_of(first, other)
    await again.begin()
    again.note_death()  # the first one that it is known for


async def test_suspects_of_two_gateways_are_tried_one_at_a_time(database: Database) -> None:
    """Or the one that kills would have the other blamed for the same worker."""
    first, second = (Quarantine(lambda: 0.0, QuarantineStore(database)) for _ in range(2))
    trials = [trial_of(each, sampled(top_k=number + 1)) for number, each in enumerate((first, second))]
    for trial in trials:
        trial.note_death()
    await trials[0].begin()
    waiting = asyncio.create_task(trials[1].begin())
    await second.catch_up()
    assert not waiting.done()
    trials[0].note_output()
    await first.catch_up()
    await asyncio.wait_for(waiting, timeout=30)
    trials[1].end()
    await second.catch_up()


async def test_a_gateway_whose_redis_is_away_goes_by_what_it_knows() -> None:
    away = Database.connect("unix:///nonexistent/redis.sock", namespace="away")
    quarantine = Quarantine(lambda: 0.0, QuarantineStore(away))
    trial = trial_of(quarantine)
    trial.note_death()
    await trial.begin()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        trial.note_death()
    with pytest.raises(UnavailableError):
        await quarantine.catch_up()
    with pytest.raises(InvalidArgumentError, match="quarantine"):
        await trial_of(quarantine).begin()
    await away.close()


class Places:
    """A router that gives the workers one after the other."""

    def __init__(self, endpoints: list[str]) -> None:
        self._endpoints = endpoints

    async def route(self, request: PlaceRequest) -> Lease:
        number = len(request.excluded_worker_ids)
        endpoint = self._endpoints[number]
        return Lease(lease_id=f"lease-{number}", worker_id=endpoint, endpoint=endpoint, reason="")

    def note_first_token(self, lease_id: str, *, ttft_s: float) -> None:
        raise AssertionError("a model that does not generate has no first token")

    def release(self, release: Release) -> None:
        pass


def encoding(*token_ids: int) -> InferJob:
    return InferJob(
        request_id="r",
        model=SimpleNamespace(name="bert"),  # type: ignore[arg-type]
        sequences=(InferSequence(token_ids=token_ids),),
        slo=Slo(),
        arrived_s=time.monotonic(),
    )


async def test_a_request_that_takes_encoders_down_ends_at_every_gateway_and_its_neighbours_go_on(
    database: Database,
) -> None:
    """Workers are real processes; gateways are what they have for encoders."""
    with ExitStack() as stack:
        started = [stack.enter_context(worker_process(step_s=0.1)) for _ in range(3)]
        endpoints = [endpoint for _, endpoint in started]
        async with Peers(Membership(database)).watching() as peers:
            quarantines = [Quarantine(time.monotonic, QuarantineStore(database)) for _ in range(2)]
            first, second = (
                Inferrer(router=Places(endpoints), workers=InferClient(peers), quarantine=each, resume_timeout_s=30)
                for each in quarantines
            )
            neighbours = [asyncio.create_task(first.infer(encoding(number))) for number in range(2, 8)]
            with pytest.raises(InvalidArgumentError, match="two workers died while they computed it"):
                await first.infer(encoding(1, DEADLY_ID))
            answers = [await neighbour for neighbour in neighbours]
            assert [answer.vectors[0].tolist() for answer in answers] == [[number] for number in range(2, 8)]
            for each in quarantines:
                await each.catch_up()
            with pytest.raises(InvalidArgumentError, match="quarantine"):
                await second.infer(encoding(1, DEADLY_ID))
            assert [process.poll() is not None for process, _ in started].count(True) == 2


async def test_a_worker_that_cannot_be_reached_was_not_taken_down_by_who_came_then(database: Database) -> None:
    with ExitStack() as stack:
        process, gone = stack.enter_context(worker_process())
        kill(process)
        _, endpoint = stack.enter_context(worker_process())
        async with Peers(Membership(database)).watching() as peers:
            workers = InferClient(peers)
            with pytest.raises(UnavailableError) as found:
                await workers.infer(gone, encoding(1).request(now_s=0.0))
            assert not isinstance(found.value, WorkerDiedError)
            inferrer = Inferrer(
                router=Places([gone, endpoint]),
                workers=workers,
                quarantine=Quarantine(time.monotonic),
                resume_timeout_s=30,
            )
            assert (await inferrer.infer(encoding(5))).vectors.tolist() == [[5.0]]
