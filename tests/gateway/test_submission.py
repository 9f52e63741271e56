"""What a request takes on the way to a worker, over a stream that all share."""

import asyncio

import pytest

from headway.core.request import FinishReason, GenerationRequest, Guide, GuideKind, SamplingParams, SequenceOutput
from headway.gateway.client import Failure, Submit, TokenStreamClient
from headway.gateway.link import Delivery, LinkLost, Links
from headway.gateway.output_queue import OutputQueue
from headway.rpc.convert import group_from_pb, group_to_pb
from headway.rpc.peers import Peers
from headway.store.membership import Membership
from headway.store.redis import Database
from tests.gateway.scripted_worker import ScriptedWorker, start


def samples(
    name: str, num_samples: int, *, num_prompt_tokens: int = 4, guide: str = "a"
) -> tuple[GenerationRequest, ...]:
    asked = Guide(GuideKind.REGEX, guide)
    return tuple(
        GenerationRequest(
            request_id=f"{name}/{i}",
            model="m",
            prompt_token_ids=tuple(range(10, 10 + num_prompt_tokens)),
            output_token_ids=(i,) if i else (),
            sampling=SamplingParams(max_tokens=3, seed=70 + i, logit_bias=((5, 1.0),), guide=asked),
        )
        for i in range(num_samples)
    )


def test_what_the_samples_of_a_prompt_have_in_common_is_sent_once() -> None:
    requests = samples("r", 128, num_prompt_tokens=20_000, guide="a" * (1 << 18))
    message = group_to_pb(requests)
    assert message.ByteSize() < 400_000
    assert tuple(group_from_pb(message)) == requests


def test_a_group_whose_sequences_all_say_everything_is_read_too() -> None:
    requests = samples("r", 3)
    message = group_to_pb(requests[:1])
    for request in requests[1:]:
        message.sequences.append(group_to_pb([request]).sequences[0])
    assert tuple(group_from_pb(message)) == requests


async def test_a_request_too_large_to_send_fails_alone_and_its_neighbours_go_on(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr("headway.gateway.client._MAX_SUBMIT_BYTES", 1000)
    worker = ScriptedWorker()
    server, port = await start(worker)
    links = Links(TokenStreamClient(Peers(Membership(Database.connect("redis://127.0.0.1:1", namespace="nobody")))))
    link = links.to(f"127.0.0.1:{port}")
    neighbour, large = OutputQueue[Delivery](), OutputQueue[Delivery]()
    link.submit(Submit(samples("neighbour", 2)), neighbour)
    link.submit(Submit(samples("large", 2, guide="a" * 2000)), large)
    failures = await asyncio.wait_for(large.take(), 5)
    assert [failure.error.code for failure in failures if isinstance(failure, Failure)] == ["invalid_argument"] * 2
    outputs: list[Delivery] = []
    while sum(isinstance(each, SequenceOutput) and each.finish_reason is FinishReason.LENGTH for each in outputs) < 2:
        outputs += await asyncio.wait_for(neighbour.take(), 5)
    assert not link.is_broken
    assert worker.num_streams == 1
    await links.close()
    await server.stop(None)


@pytest.mark.parametrize("leaves", [True, False])
async def test_a_worker_that_leaves_is_told_from_one_that_dies(leaves: bool) -> None:
    """What the first has not computed nobody died of."""
    worker = ScriptedWorker(step_s=1, leaves=leaves)
    server, port = await start(worker)
    links = Links(TokenStreamClient(Peers(Membership(Database.connect("redis://127.0.0.1:1", namespace="nobody")))))
    outputs = OutputQueue[Delivery]()
    links.to(f"127.0.0.1:{port}").submit(Submit(samples("r", 1)), outputs)
    found = await asyncio.wait_for(outputs.take(), 30)
    if not leaves:  # its first token
        await server.stop(None)
        found = await asyncio.wait_for(outputs.take(), 30)
    assert isinstance(found[-1], LinkLost)
    assert (found[-1].was_open, found[-1].is_leaving) == (True, leaves)
    await links.close()
    await server.stop(None)
