"""The soak in small: it sees every kind of request, and would see a leak or a wrong answer."""

import pytest
import torch

from benchmarks.soak.__main__ import ROOMY, SETTINGS, make_runner, of_model, soak
from benchmarks.soak.replay import Replay
from benchmarks.soak.round import Round, Tally
from benchmarks.soak.traffic import Group, Kind, Traffic
from deploy.demo.make_model import make_demo_model
from headway.checkpoint.model_directory import Checkpoint, read_checkpoint
from headway.core.request import GenerationRequest, SamplingParams
from headway.engine.config import EngineConfig


@pytest.fixture(scope="module")
def checkpoint(tmp_path_factory: pytest.TempPathFactory) -> Checkpoint:
    torch.set_num_threads(1)
    return read_checkpoint(make_demo_model(tmp_path_factory.mktemp("soak") / "model", is_random=True))


def test_traffic_is_seeded_and_of_every_kind() -> None:
    first, second = (Traffic(vocab_size=500, seed=7) for _ in range(2))
    groups = [first.group() for _ in range(200)]
    assert groups == [second.group() for _ in range(200)]
    assert {group.kind for group in groups} == set(Kind)
    assert {len(group.requests) for group in groups if group.kind is Kind.SAMPLED} == {1, 2, 3, 4}


def test_every_setting_runs_and_ends_empty(checkpoint: Checkpoint) -> None:
    tally = soak(checkpoint, minutes=0.01, seed=1)
    assert tally.counts["steps"] > 0
    assert tally.counts["answers computed again"] > 0


def test_what_is_left_in_the_engine_is_a_leak(checkpoint: Checkpoint) -> None:
    config = of_model(SETTINGS[0], checkpoint)
    leaky = Round(config, runner=make_runner(config, checkpoint), seed=0, tally=Tally())
    request = GenerationRequest(request_id="a", model="m", prompt_token_ids=(20,) * 40, sampling=SamplingParams())
    leaky._engine.submit(request)
    leaky._engine.step()
    with pytest.raises(AssertionError):
        leaky._check_empty()


def test_a_wrong_answer_is_found(checkpoint: Checkpoint) -> None:
    replay = Replay(of_model(ROOMY, checkpoint), runner=make_runner(ROOMY, checkpoint))
    sampling = SamplingParams(temperature=0.0, max_tokens=4, ignore_eos=True)
    request = GenerationRequest(request_id="a", model="m", prompt_token_ids=(20, 21, 22), sampling=sampling)
    with pytest.raises(AssertionError, match="greedy request a differs"):
        replay.check(Group(Kind.GREEDY, (request,)), {"a": ((1, 2, 3, 4, 5),)})


@pytest.mark.parametrize("setting", SETTINGS)
def test_settings_are_tight(setting: EngineConfig) -> None:
    """The longest sequences of a full batch take far more than the pool."""
    assert setting.num_blocks * setting.block_size < setting.max_num_seqs * setting.max_model_len / 4
