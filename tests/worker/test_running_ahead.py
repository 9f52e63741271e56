"""Steps that are launched behind one another, on a real network: every answer is what it is one step at a time."""

import random
from collections.abc import Callable
from dataclasses import replace
from itertools import count

import pytest

from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import BeamSearch, Guide, GuideKind, SamplingParams
from headway.engine.batch import StepBatch, StepResult
from headway.engine.config import EngineConfig
from headway.engine.engine import Engine
from headway.runner.model_runner import ModelRunner
from tests.checkpoints import make_checkpoint
from tests.worker.workload import Group, Run, generate, make_group

FREE: dict[str, dict[str, object]] = {
    "greedy": {"temperature": 0.0, "num_logprobs": 2},
    "sampled": {"temperature": 0.8, "top_p": 0.9, "top_k": 40, "seed": 3},
    "scored": {"temperature": 0.0, "num_prompt_logprobs": 1},
    "stopped": {"temperature": 1.0, "seed": 5, "stop_token_ids": tuple(range(0, 512, 7)), "min_tokens": 9},
    "biased": {"temperature": 0.6, "seed": 8, "logit_bias": ((12, 3.0), (400, -2.0)), "num_logprobs": 0},
    "ending": {"temperature": 1.0, "seed": 9, "ignore_eos": False, "stop_token_ids": tuple(range(0, 512, 3))},
}
HELD: dict[str, dict[str, object]] = {
    "penalised": {"temperature": 0.7, "seed": 4, "frequency_penalty": 0.5, "repetition_penalty": 1.1},
    "worded": {"temperature": 0.0, "bad_token_ids": ((7,), (8, 9))},
    "guided": {"temperature": 0.9, "seed": 6, "guide": Guide(GuideKind.REGEX, "([a-f]{3} ){30}")},
    "beam": {"beam": BeamSearch(width=3, num_hypotheses=3)},
}


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    return read_checkpoint(make_checkpoint(tmp_path_factory.mktemp("tiny"), "llama"))


def groups_of(kinds: dict[str, dict[str, object]]) -> list[Group]:
    """Two of each kind, one behind a common prefix, and groups of samples."""
    draw = random.Random(12)
    common = [draw.randrange(512) for _ in range(24)]
    groups: list[Group] = []
    for index in range(2):
        for number, (kind, fields) in enumerate(kinds.items()):
            prompt = [draw.randrange(512) for _ in range(draw.choice((1, 8, 21, 40)))]
            params = SamplingParams(**{"max_tokens": 12 + 5 * number, "ignore_eos": True, **fields})
            groups.append(make_group(f"{kind}/{index}", common + prompt if index else prompt, params))
        samples = [SamplingParams(max_tokens=25, seed=seed, ignore_eos=True) for seed in (31, 32, 33)]
        groups.append(make_group(f"samples/{index}", common[: 9 + index], *samples))
    return groups


MIXES = {"free": FREE, "mixed": FREE | HELD}


@pytest.fixture(scope="module", params=MIXES)
def plain(request: pytest.FixtureRequest, checkpoint: Checkpoint) -> tuple[list[Group], Run]:
    groups = groups_of(MIXES[request.param])
    return groups, generate(checkpoint, groups, num_blocks=2048, block_size=8)


@pytest.mark.parametrize(
    "limits",
    [
        {"num_blocks": 2048},
        {"num_blocks": 2048, "max_num_batched_tokens": 32, "max_num_seqs": 16},
        {"num_blocks": 40, "max_num_batched_tokens": 64, "preemption": "recompute"},
        {"num_blocks": 40, "max_num_batched_tokens": 64, "preemption": "swap", "num_host_blocks": 400},
        {"num_blocks": 40, "preemption": "swap", "num_host_blocks": 20, "enable_prefix_cache": False},
        {"num_blocks": 2048, "num_draft_tokens": 3},
    ],
    ids=["roomy", "chunks", "recompute", "swap", "swap-little", "drafts"],
)
def test_answers_are_those_of_one_step_at_a_time(
    checkpoint: Checkpoint, plain: tuple[list[Group], Run], limits: dict[str, object]
) -> None:
    groups, expected = plain
    run = generate(checkpoint, groups, block_size=8, runs_ahead=True, **limits)
    for name, answer in expected.answers.items():
        assert run.answers[name] == answer, name
    assert (run.stats.num_preemptions > 0) == (limits["num_blocks"] == 40)


class Watched(ModelRunner):
    """Counts the batches in flight."""

    def __init__(self, checkpoint: Checkpoint, **arguments: object) -> None:
        super().__init__(checkpoint, **arguments)  # type: ignore[arg-type]
        self.depth = 0
        self.depths: list[int] = []

    def start(self, batch: StepBatch) -> None:
        super().start(batch)
        self.depth += 1

    def finish(self) -> StepResult:
        self.depths.append(self.depth)
        self.depth -= 1
        return super().finish()


@pytest.fixture
def make_engine(checkpoint: Checkpoint) -> Callable[[], tuple[Engine, Watched]]:
    def make() -> tuple[Engine, Watched]:
        config = EngineConfig(num_blocks=64, max_model_len=256, runs_ahead=True)
        runner = Watched(checkpoint, num_blocks=64, runs_ahead=True, num_threads=1)
        return Engine(config, runner=runner, clock=count().__next__), runner

    return make


def tokens_of(engine: Engine, *, num_steps: int | None = None) -> dict[str, list[int]]:
    tokens: dict[str, list[int]] = {}
    steps = count() if num_steps is None else range(num_steps)
    for _ in steps:
        if not engine.has_work:
            break
        for output in engine.step():
            tokens.setdefault(output.request_id, []).extend(output.token_ids)
    return tokens


def test_two_steps_are_under_way_while_sequences_decode(
    make_engine: Callable[[], tuple[Engine, Watched]],
) -> None:
    engine, runner = make_engine()
    for group in groups_of({"greedy": {"temperature": 0.0}}):
        engine.submit_group(group)
    tokens_of(engine)
    assert runner.depths.count(1) <= 3  # the last one, and those before a group forks or behind which all end


def test_those_that_stay_notice_nothing_of_one_that_is_cancelled_in_flight(
    make_engine: Callable[[], tuple[Engine, Watched]], checkpoint: Checkpoint
) -> None:
    groups = groups_of({kind: FREE[kind] for kind in ("greedy", "sampled", "biased")})
    expected = generate(checkpoint, groups)
    engine, runner = make_engine()
    for group in groups:
        engine.submit_group(group)
    received = tokens_of(engine, num_steps=4)
    assert runner.depth == 1
    cancelled = {"greedy/0/0", "samples/1/1", "biased/1/0"}
    for request_id in cancelled:
        assert engine.cancel(request_id)
    rest = tokens_of(engine)
    assert cancelled.isdisjoint(rest)
    for request_id, answer in expected.answers.items():
        got = received[request_id] + rest.get(request_id, [])
        assert got == answer.token_ids[: len(got)]
        assert request_id in cancelled or got == answer.token_ids


def test_a_sequence_goes_on_elsewhere_from_blocks_that_were_read_between_steps_in_flight(
    make_engine: Callable[[], tuple[Engine, Watched]], checkpoint: Checkpoint
) -> None:
    (request,) = make_group("a", list(range(40)), SamplingParams(max_tokens=60, temperature=0.0))
    expected = generate(checkpoint, [[request]]).answers["a/0"].token_ids
    (source, source_runner), (target, target_runner) = make_engine(), make_engine()
    source.submit(request)
    tokens = tokens_of(source, num_steps=20)["a/0"]
    assert source_runner.depth == 1
    source.settle()
    tokens += tokens_of(source, num_steps=1)["a/0"]
    (chain,) = source.kv_transfer.chains(["a/0"])
    assert len(chain) == (40 + len(tokens) - 1) // 16
    places = source.kv_transfer.locate(chain)
    contents = source_runner.blocks.read([(place.block, place.is_on_host) for place in places])
    missing = target.kv_transfer.missing([chain], num_sequences=1)
    blocks = [target.kv_transfer.admit(block) for block in missing]
    target_runner.blocks.write([(block, False) for block in blocks if block is not None], contents)
    source.cancel("a/0")
    assert tokens_of(source) == {}
    (moved,) = make_group("a", list(range(40)), request.sampling)
    target.submit(replace(moved, output_token_ids=tuple(tokens)))
    rest = tokens_of(target)["a/0"]
    assert tokens + rest == expected
    assert target.stats().num_prefix_hits == len(chain) * 16
