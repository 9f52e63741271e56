"""`headway up --backend`: for encoders, of what is installed."""

from dataclasses import replace
from pathlib import Path

import pytest

from headway.cli.backend_choice import check_backends, with_backends
from headway.cli.models import read_models
from headway.core.backend_package import BUILT_IN
from headway.core.errors import FailedPreconditionError, InvalidArgumentError
from headway.core.plan.serving import EngineLimits, ModelDeployment
from headway.core.slo import Slo
from tests.encoders import make_encoder


@pytest.fixture
def models(checkpoint: Path, tmp_path: Path) -> tuple[ModelDeployment, ...]:
    bert = make_encoder(tmp_path / "bert", "bert")
    return read_models([f"bert={bert}", f"tiny={checkpoint}"], dtype=None, max_model_len=None, slo=Slo())


@pytest.fixture(autouse=True)
def installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """onnxruntime alone, in the version of what is here for certain."""
    packages = {"onnxruntime": "torch", "openvino": "no-such-package"}
    found = tuple(replace(each, package=packages.get(each.name, each.package)) for each in BUILT_IN)
    monkeypatch.setattr("headway.core.served_backend.BUILT_IN", found)


@pytest.mark.parametrize(
    ("backends", "chosen"),
    [
        ((), ""),
        (("fastest",), "fastest"),
        (("bert=onnxruntime",), "onnxruntime"),
        (("fastest", "bert=eager"), ""),
    ],
)
def test_encoders_run_on_what_was_asked_for(
    models: tuple[ModelDeployment, ...], backends: tuple[str, ...], chosen: str
) -> None:
    bert, tiny = with_backends(models, backends, is_emulated=False)
    assert (bert.backend, tiny.backend) == (chosen, "")


@pytest.mark.parametrize(
    ("backend", "fault", "hint"),
    [
        ("tvm", "The backend tvm is unknown", "fastest, eager, onnxruntime, openvino"),
        ("inductor", "compiles for one shape", "fastest, eager"),
        ("tiny=onnxruntime", "names no encoder", "There are bert"),
        ("=onnxruntime", "no name before", ""),
    ],
)
def test_what_cannot_be_chosen_is_refused(
    models: tuple[ModelDeployment, ...], backend: str, fault: str, hint: str
) -> None:
    with pytest.raises(InvalidArgumentError, match=fault) as caught:
        with_backends(models, [backend], is_emulated=False)
    assert caught.value.field == "--backend"
    assert hint in caught.value.hint


def test_what_is_not_installed_names_the_extra_and_what_there_is(models: tuple[ModelDeployment, ...]) -> None:
    with pytest.raises(FailedPreconditionError, match="openvino is not installed") as caught:
        with_backends(models, ["openvino"], is_emulated=False)
    assert "headway[backends]" in caught.value.hint
    assert "fastest, eager, onnxruntime" in caught.value.hint


def test_a_model_that_no_library_can_run_is_refused_unless_the_fastest_will_do(
    models: tuple[ModelDeployment, ...],
) -> None:
    with pytest.raises(InvalidArgumentError, match="emulated"):
        with_backends(models, ["fastest"], is_emulated=True)
    named, fastest = (with_backends(models, [each], is_emulated=False) for each in ("onnxruntime", "fastest"))
    check_backends(named, EngineLimits(), device="cpu")
    check_backends(fastest, EngineLimits(tp=2), device="cpu")
    for limits, device, fault in ((EngineLimits(tp=2), "cpu", "several workers"), (EngineLimits(), "cuda", "on cuda")):
        with pytest.raises(InvalidArgumentError, match=fault):
            check_backends(named, limits, device=device)
