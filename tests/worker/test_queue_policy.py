"""Who is next in the queue of a worker that generates."""

from pathlib import Path
from typing import Any

import pytest

from headway.core.line import QueuePolicy
from headway.v1 import worker_pb2
from tests.worker.conftest import Bench, load, serving
from tests.worker.streams import sampling

NUM_WAITING = 40
MAX_NUM_SEQS = 8
NUM_TOKENS = 20
NUM_FIRST_TOKENS = 400  # of those that run first, so that all others are there before one of them ends
USUAL: dict[QueuePolicy, dict[str, Any]] = {
    QueuePolicy.FCFS: {},
    QueuePolicy.PRIORITY: {"priority": 10},
    QueuePolicy.LEAST_SLACK: {"slack_s": 60.0},
}
URGENT: dict[QueuePolicy, dict[str, Any]] = {
    QueuePolicy.FCFS: {"priority": -100, "slack_s": 0.5},
    QueuePolicy.PRIORITY: {"priority": -100},
    QueuePolicy.LEAST_SLACK: {"slack_s": 0.5},
}


async def ends(bench: Bench, requests: dict[str, dict[str, Any]]) -> list[str]:
    """The requests, submitted one after the other, in the order in which they end."""
    call = bench.stub.GenerateTokens()
    for number, (request_id, fields) in enumerate(requests.items()):
        num_tokens = NUM_FIRST_TOKENS if number < MAX_NUM_SEQS else NUM_TOKENS
        submit = worker_pb2.SubmitSequence(
            request_id=request_id,
            model="tiny",
            prompt_token_ids=range(5, 25),
            sampling=sampling(max_tokens=num_tokens, temperature=0.0),
            **fields,
        )
        await call.write(worker_pb2.GenerateTokensRequest(submit=submit))
    await call.done_writing()
    return [output.request_id async for message in call for output in message.outputs if output.finish_reason]


@pytest.mark.parametrize("policy", QueuePolicy)
async def test_an_urgent_request_overtakes_all_that_wait(tiny: Path, policy: QueuePolicy) -> None:
    requests = {f"usual-{number}": USUAL[policy] for number in range(NUM_WAITING)} | {"urgent": URGENT[policy]}
    async with serving(queue_policy=policy) as bench:
        await load(bench, tiny, max_num_seqs=MAX_NUM_SEQS)
        order = await ends(bench, requests)
    assert sorted(order) == sorted(requests)
    if policy is QueuePolicy.FCFS:
        assert order.index("urgent") > NUM_WAITING - MAX_NUM_SEQS, "with the last that run"
    else:
        assert order.index("urgent") < 3 * MAX_NUM_SEQS, "after those that run when it comes, and with those next to it"
