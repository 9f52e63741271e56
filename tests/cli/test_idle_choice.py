"""Which models are unloaded while nobody asks for them, where users say it: --unload-idle."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.idle_choice import with_idle
from headway.cli.models import read_models
from headway.core.engine_kind import EngineKind
from headway.core.errors import InvalidArgumentError
from headway.core.plan.serving import ModelDeployment
from headway.core.slo import Slo


@pytest.fixture
def models(checkpoint: Path) -> tuple[ModelDeployment, ...]:
    return read_models([f"a={checkpoint}", f"b={checkpoint}"], dtype=None, max_model_len=None, slo=Slo())


def test_a_duration_is_of_all_models_or_of_one(models: tuple[ModelDeployment, ...]) -> None:
    assert [(each.may_sleep, each.idle_s) for each in with_idle(models, ["b=90s"])] == [(False, None), (True, 90.0)]
    assert [(each.may_sleep, each.idle_s) for each in with_idle(models, ["30m", "b=1h"])] == [
        (True, 1800.0),
        (True, 3600.0),
    ]
    assert with_idle(models, []) == models


def test_what_is_wrong_is_named(models: tuple[ModelDeployment, ...]) -> None:
    with pytest.raises(InvalidArgumentError, match="--unload-idle c=5m names no model; there are a, b"):
        with_idle(models, ["c=5m"])
    with pytest.raises(InvalidArgumentError, match="soon is no duration"):
        with_idle(models, ["a=soon"])
    server = replace(models[0], engine=EngineKind.VLLM_SERVER)
    with pytest.raises(InvalidArgumentError, match="a is loaded in a server that Headway did not start"):
        with_idle([server, models[1]], ["5m"])
    assert with_idle([server, models[1]], ["b=5m"])[0] == server
