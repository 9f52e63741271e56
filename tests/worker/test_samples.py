"""Several samples of one prompt: each is what it would be alone, and the prompt is computed and kept once."""

import random
from pathlib import Path

import pytest

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import SamplingParams
from tests.checkpoints import make_checkpoint
from tests.worker.workload import Group, generate, make_group

NUM_SAMPLES = 4


@pytest.fixture(scope="module", params=["llama", "opt", "gpt2"])
def checkpoint(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    directory: Path = make_checkpoint(tmp_path_factory.mktemp(request.param), request.param)
    return read_checkpoint(directory)


def groups(**sampling: object) -> list[Group]:
    draw = random.Random(9)
    fields = {"max_tokens": 24, "num_logprobs": 0, **sampling}
    params = [SamplingParams(**{**fields, "seed": 50 + index}) for index in range(NUM_SAMPLES)]
    return [
        make_group(f"prompt-{length}", [draw.randrange(512) for _ in range(length)], *params)
        for length in (1, 15, 16, 37)
    ]


@pytest.mark.parametrize(
    "sampling",
    [
        {},
        {"temperature": 0.7, "top_p": 0.9, "frequency_penalty": 0.3},
        {"num_prompt_logprobs": 1},
        {"stop_token_ids": tuple(range(0, 512, 5)), "min_tokens": 2},
    ],
)
@pytest.mark.parametrize("limits", [{}, {"max_num_prefill_tokens": 7}, {"enable_prefix_cache": False}])
def test_samples_equal_requests_of_their_own_with_those_seeds(checkpoint, sampling, limits):
    together = groups(**sampling)
    alone = [[request] for group in together for request in group]
    assert generate(checkpoint, together, **limits).answers == generate(checkpoint, alone).answers


def test_the_prompt_is_computed_once(checkpoint):
    (group,) = groups()[-1:]
    run = generate(checkpoint, [group], enable_prefix_cache=False, max_num_batched_tokens=64)
    assert run.num_prefill_tokens == 37
