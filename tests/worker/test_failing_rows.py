"""A request that cannot be computed ends alone: what its neighbours get is what they get without it."""

import random
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from safetensors.torch import load_file, save_file

import headway.runner.sampler
from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import BeamSearch, FinishReason, GenerationRequest, SamplingParams
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner
from headway.v1 import common_pb2, worker_pb2
from tests.checkpoints import make_checkpoint
from tests.worker.conftest import Bench, load
from tests.worker.streams import check_integrity, sampling
from tests.worker.workload import make_group

BROKEN = 300  # the token whose embedding is NaN
BIASED = 13  # the token whose bias raises

AHEAD: dict[str, Any] = {"runs_ahead": True}
TIGHT: dict[str, Any] = {"num_blocks": 40}


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkpoint in which one token's embedding is NaN, and which never says that token."""
    directory = make_checkpoint(tmp_path_factory.mktemp("broken"), "llama", tie_word_embeddings=False)
    (file,) = directory.glob("*.safetensors")
    tensors = load_file(file)
    tensors["model.embed_tokens.weight"][BROKEN] = float("nan")
    tensors["lm_head.weight"][BROKEN] = 0
    save_file(tensors, file, metadata={"format": "pt"})
    return directory


@pytest.fixture(scope="module")
def checkpoint(broken: Path) -> Checkpoint:
    return read_checkpoint(broken)


def serve(checkpoint: Checkpoint, groups: list[list[GenerationRequest]], **limits: Any) -> dict[str, tuple[Any, ...]]:
    """Of each request its tokens, hypotheses and end, and its error."""
    config = EngineConfig(**{"num_blocks": 256, "max_model_len": 256, "max_num_seqs": 16} | limits)
    runner = ModelRunner(checkpoint, num_blocks=config.num_blocks, runs_ahead=config.runs_ahead, num_threads=1)
    engine = Engine(config, runner=runner, clock=time.perf_counter)
    for group in groups:
        engine.submit_group(group)
    tokens: dict[str, list[int]] = {request.request_id: [] for group in groups for request in group}
    ends: dict[str, tuple[Any, ...]] = {}
    while engine.has_work:
        try:
            outputs = engine.step()
        except RuntimeError as error:
            outputs = engine.recover(str(error))
        engine.check_integrity()
        for output in outputs:
            tokens[output.request_id] += output.token_ids
            if output.finish_reason is not None:
                end = output.hypotheses, output.finish_reason, output.error
                ends[output.request_id] = tokens[output.request_id], *end
    assert engine.stats().num_used_blocks == 0
    runner.close()
    return ends


def neighbours() -> list[list[GenerationRequest]]:
    draw = random.Random(5)
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.8, "seed": 3, "top_p": 0.9},
        {"temperature": 0.0, "num_logprobs": 1, "frequency_penalty": 0.5},
        {"beam": BeamSearch(width=3, num_hypotheses=2)},
    ]
    groups = []
    for index, kind in enumerate(kinds * 2):
        prompt = [draw.randrange(BROKEN) for _ in range(draw.choice((3, 17, 40)))]
        groups.append(make_group(f"n{index}", prompt, SamplingParams(max_tokens=20, ignore_eos=True, **kind)))
    prompt = [draw.randrange(BROKEN) for _ in range(20)]
    samples = [SamplingParams(max_tokens=20, ignore_eos=True, seed=seed) for seed in (1, 2)]
    return [*groups, make_group("samples", prompt, *samples)]


def among(groups: list[list[GenerationRequest]], bad: list[list[GenerationRequest]]) -> list[list[GenerationRequest]]:
    return [*groups[:3], *bad[:2], *groups[3:6], *bad[2:], *groups[6:]]


def bad_groups(prompt: list[int], **fields: Any) -> list[list[GenerationRequest]]:
    kinds: list[dict[str, Any]] = [
        {"temperature": 0.0},
        {"temperature": 0.9, "seed": 4},
        {"temperature": 0.0, "num_logprobs": 1, "num_prompt_logprobs": 1},
        {"beam": BeamSearch(width=2)},
    ]
    groups = [
        make_group(f"bad{i}", prompt, SamplingParams(max_tokens=9, **fields | kind)) for i, kind in enumerate(kinds)
    ]
    return [
        *groups,
        make_group("bad4", prompt, *(SamplingParams(max_tokens=9, seed=seed, **fields) for seed in (1, 2))),
    ]


@pytest.mark.parametrize(
    "limits", [{}, AHEAD, TIGHT, AHEAD | TIGHT, {"max_num_prefill_tokens": 7, "num_draft_tokens": 3}]
)
def test_logits_that_are_no_numbers_end_their_own_request(checkpoint: Checkpoint, limits: dict[str, Any]) -> None:
    """Also where others get the blocks that it leaves full of them."""
    groups = neighbours()
    expected = serve(checkpoint, groups, **limits)
    assert all(reason is FinishReason.LENGTH for _, _, reason, _ in expected.values())
    ends = serve(checkpoint, among(groups, bad_groups([5, 6, BROKEN, *range(40, 60)])), **limits)
    for request_id, end in ends.items():
        if request_id.startswith("bad"):
            tokens, hypotheses, reason, error = end
            assert (tokens, hypotheses, reason) == ([], (), FinishReason.ERROR)
            assert "no finite numbers" in error
        else:
            assert end == expected[request_id]


@pytest.fixture
def raising_bias(monkeypatch: pytest.MonkeyPatch) -> None:
    """Whoever biases a certain token makes the whole batch's sampling fail."""

    def fail(_logits: object, rows: list[Any]) -> None:
        if any(token == BIASED for row in rows for token, _ in row.sampling.logit_bias):
            raise RuntimeError("a row that nobody can sample")

    monkeypatch.setattr("headway.runner.sampler.apply_bias", fail)


@pytest.mark.usefixtures("raising_bias")
@pytest.mark.parametrize(
    "limits", [{}, AHEAD, TIGHT, AHEAD | TIGHT, {"max_num_prefill_tokens": 7, "num_draft_tokens": 3}]
)
def test_a_request_that_makes_steps_fail_ends_alone(checkpoint: Checkpoint, limits: dict[str, Any]) -> None:
    groups = neighbours()
    expected = serve(checkpoint, groups, **limits)
    ends = serve(checkpoint, among(groups, bad_groups([5, 6, 7], logit_bias=((BIASED, 1.0),))), **limits)
    for request_id, end in ends.items():
        if request_id.startswith("bad"):
            assert end == ([], (), FinishReason.ERROR, "a row that nobody can sample")
        else:
            assert end == expected[request_id]


async def answers(
    bench: Bench,
    requests: dict[str, dict[str, Any]],
    *,
    prompt: list[int],
    on_all_sent: Callable[[], None] = lambda: None,
) -> dict[str, tuple[Any, ...]]:
    """Of each request its tokens and its error."""
    call = bench.stub.GenerateTokens()
    for request_id, fields in requests.items():
        prompt_token_ids = fields.pop("prompt", prompt)
        submit = worker_pb2.SubmitSequence(
            request_id=request_id, model="tiny", prompt_token_ids=prompt_token_ids, sampling=sampling(**fields)
        )
        await call.write(worker_pb2.GenerateTokensRequest(submit=submit))
    await call.done_writing()
    on_all_sent()
    tokens: dict[str, list[int]] = {request_id: [] for request_id in requests}
    errors = dict.fromkeys(requests, "")
    async for message in call:
        for output in message.outputs:
            tokens[output.request_id] += output.token_ids
            errors[output.request_id] += output.error.message
    return {request_id: (tokens[request_id], errors[request_id]) for request_id in requests}


def crowd() -> dict[str, dict[str, Any]]:
    return {f"n{seed}": {"temperature": 0.8 * (seed % 2), "seed": seed, "max_tokens": 20} for seed in range(6)}


def biased() -> dict[str, Any]:
    return {"logit_bias": [common_pb2.LogitBias(token_id=BIASED, bias=1.0)], "temperature": 0.0}


@pytest.mark.usefixtures("raising_bias")
@pytest.mark.parametrize("is_ahead", [False, True])
async def test_over_a_worker_one_bad_request_leaves_the_others_and_the_worker_alone(
    unloaded: Bench, broken: Path, is_ahead: bool, request: pytest.FixtureRequest
) -> None:
    if is_ahead:
        request.getfixturevalue("overlapped_steps")
    bench = await load(unloaded, broken)
    prompt = list(range(20, 50))
    expected = await answers(bench, crowd(), prompt=prompt)
    assert all(len(tokens) == 20 and not error for tokens, error in expected.values())
    bad: dict[str, dict[str, Any]] = {f"bad{n}": biased() | {"max_tokens": 5} for n in range(5)}
    bad["nan"] = {"temperature": 0.0, "prompt": [4, BROKEN, 8], "max_tokens": 5}
    answered = await answers(bench, crowd() | bad, prompt=prompt)
    for request_id, answer in answered.items():
        assert answer == expected.get(request_id, ([], answer[1]))
        assert bool(answer[1]) == (request_id not in expected)
    assert "no finite numbers" in answered["nan"][1]
    await check_integrity(bench)
    assert "crashed" not in bench.states


@pytest.fixture
def are_all_sent(raising_bias: None, monkeypatch: pytest.MonkeyPatch) -> threading.Event:
    """No step fails before it is set: a worker that is given up ends the call, and takes no more of its requests."""
    is_set = threading.Event()
    fail = headway.runner.sampler.apply_bias

    def fail_later(logits: object, rows: list[Any]) -> None:
        assert is_set.wait(60)
        fail(logits, rows)  # type: ignore[arg-type]

    monkeypatch.setattr("headway.runner.sampler.apply_bias", fail_later)
    return is_set


async def test_a_worker_on_which_nothing_succeeds_any_more_is_given_up(
    bench: Bench, are_all_sent: threading.Event
) -> None:
    """Its requests can go on elsewhere: but for those that have been tried alone, they do not end with an error."""
    bad = {f"bad{n}": biased() for n in range(8)}
    answered = await answers(bench, bad, prompt=[4, 5, 6], on_all_sent=are_all_sent.set)
    failed = [error for _, error in answered.values() if "failed to compute" in error]
    assert len(failed) == 3
    assert sum("going away" in error for _, error in answered.values()) == 5
    assert "crashed" in bench.states
