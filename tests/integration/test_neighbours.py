"""Whatever one request asks for, its neighbours' answers stay what they are. How long they wait for these is measured
by `make bench-reliability PART=heavy`.
"""

import json
import os
import random
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import httpx
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from benchmarks.reliability.heavy_body import HeavyBodies
from tests.checkpoints import make_tokenizer
from tests.integration.stack import RunningStack

NUM_EXAMPLES = int(os.environ.get("HEADWAY_HEAVY_BODIES", "4"))
"""More on demand."""
NEIGHBOURS: list[dict[str, Any]] = [
    {"prompt": f"the {word} train", "max_tokens": 60, **sampling}
    for word in ("first", "second")
    for sampling in (
        {"temperature": 0, "ignore_eos": True},
        {"temperature": 0.9, "seed": 4, "ignore_eos": True},
        {"temperature": 0, "frequency_penalty": 0.7, "ignore_eos": True},
        {"temperature": 0, "structured_outputs": {"regex": "[a-c]{70,90}"}},
    )
]


def streamed(stack: RunningStack, body: dict[str, Any]) -> str:
    """The lines of a stream, without what differs from one answer to the next."""
    body = {"model": "tiny", "stream": True, **body}
    with httpx.stream("POST", f"{stack.url}/v1/completions", json=body, timeout=300) as response:
        assert response.status_code == 200, response.read()
        lines = [line.removeprefix("data: ") for line in response.iter_lines() if line.startswith("data: {")]
    return "".join(choice["text"] for line in lines for choice in json.loads(line)["choices"])


def beside(stack: RunningStack, bodies: Sequence[dict[str, Any]]) -> tuple[list[list[str]], list[httpx.Response]]:
    """The texts of all neighbours, again and again while these are asked for; and what these are answered."""
    url = f"{stack.url}/v1/completions"
    with ThreadPoolExecutor(len(NEIGHBOURS) + len(bodies)) as pool:
        texts = [list(pool.map(lambda body: streamed(stack, body), NEIGHBOURS))] if not bodies else []
        heavy = [pool.submit(httpx.post, url, json={"model": "tiny", **body}, timeout=300) for body in bodies]
        while heavy and (not texts or not all(each.done() for each in heavy)):
            texts.append(list(pool.map(lambda body: streamed(stack, body), NEIGHBOURS)))
        return texts, [each.result() for each in heavy]


@pytest.fixture(scope="module")
def alone(stack: RunningStack) -> list[str]:
    (texts,), _ = beside(stack, [])
    assert all(texts)
    return texts


@settings(
    max_examples=NUM_EXAMPLES,
    deadline=None,
    derandomize="HEADWAY_HEAVY_BODIES" not in os.environ,
    suppress_health_check=[HealthCheck.too_slow, HealthCheck.function_scoped_fixture, HealthCheck.data_too_large],
)
@given(seeds=st.lists(st.integers(0, 2**32), min_size=2, max_size=2))
def test_eight_neighbours_get_what_they_get_alone(stack: RunningStack, alone: list[str], seeds: list[int]) -> None:
    vocab_size = make_tokenizer().get_vocab_size()
    drawn = [HeavyBodies(random.Random(seed), max_model_len=1024, vocab_size=vocab_size).draw() for seed in seeds]
    texts, responses = beside(stack, [body for _, body in drawn])
    for (what, _), response in zip(drawn, responses, strict=True):
        assert response.status_code in (200, 400, 413, 429), f"{what}: {response.text}"
    for each in texts:
        assert each == alone, [what for what, _ in drawn]
