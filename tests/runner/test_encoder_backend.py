"""An encoder's layers on other libraries: equal vectors; what is wrong, broken or slower is left out by name."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import fx

from headway.backends.library import CompileOptions, Run
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.backend_package import BUILT_IN
from headway.core.infer import InferSequence
from headway.core.served_backend import FASTEST, BackendTrial, choose
from headway.runner.encoder_runner import EncoderRunner
from tests.encoders import make_encoder

LENGTHS = (5, 40, 1, 17, 17, 90)
TOLERANCE = 1e-4


class Wrong:
    """Gives something else than it should."""

    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        return lambda *given: (module(*given)[0] * 1.01,)


class Broken:
    """Compiles nothing."""

    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        raise RuntimeError("no such operator\nand more")


@pytest.fixture(scope="module")
def bert(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_encoder(tmp_path_factory.mktemp("bert"), "bert")


def run(directory: Path, backend: str, *, quantization: str | None = None) -> tuple[np.ndarray, str]:
    """The vectors of a few sequences, and what the layers are said to run on."""
    runner = EncoderRunner(read_checkpoint(directory, quantization=quantization), backend=backend, num_threads=1)
    generator = np.random.default_rng(7)
    sequences = [InferSequence(token_ids=tuple(generator.integers(400, size=length).tolist())) for length in LENGTHS]
    vectors = np.stack([np.frombuffer(vector, "<f4") for vector in runner.execute(sequences)])
    return vectors, str(runner.backend)


@pytest.mark.parametrize(
    ("backend", "family", "num_labels"), [("onnxruntime", "bert", 0), ("openvino", "distilbert", 3)]
)
def test_vectors_are_those_of_eager(tmp_path: Path, backend: str, family: str, num_labels: int) -> None:
    pytest.importorskip(backend, reason=f"{backend} is not installed")
    directory = make_encoder(tmp_path, family, num_labels=num_labels)
    expected, told = run(directory, "")
    assert told == "None"
    given, told = run(directory, backend)
    assert told.startswith(backend)
    np.testing.assert_allclose(given, expected, rtol=TOLERANCE, atol=TOLERANCE)


@pytest.mark.parametrize(("library", "fault"), [(Wrong(), "is wrong by"), (Broken(), "fails: RuntimeError: no such")])
def test_a_library_that_errs_is_named_and_not_taken(
    bert: Path, library: Wrong | Broken, fault: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("onnxruntime", reason="onnxruntime is not installed")
    monkeypatch.setattr(
        "headway.backends.libraries._ADAPTERS", dict.fromkeys((each.name for each in BUILT_IN), lambda: library)
    )
    expected, _ = run(bert, "")
    given, told = run(bert, "onnxruntime")
    assert told.startswith("eager (eager ")
    assert fault in told
    assert "and more" not in told
    np.testing.assert_array_equal(given, expected)


def test_what_is_missing_or_impossible_leaves_eager_with_the_reason(
    bert: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    _, told = run(bert, FASTEST, quantization="int8")
    assert told == "eager: its matrices are held in int8"
    absent = tuple(replace(package, package="no-such-package") for package in BUILT_IN)
    monkeypatch.setattr("headway.core.served_backend.BUILT_IN", absent)
    _, told = run(bert, "openvino")
    assert told == "eager: openvino is not installed at the worker"


def test_the_fastest_is_taken_if_it_is_worth_it_and_what_is_asked_for_in_any_case() -> None:
    eager, slower, faster, broken = (
        BackendTrial(backend="eager", seconds=1.0),
        BackendTrial(backend="slower", seconds=0.97),
        BackendTrial(backend="faster", seconds=0.5),
        BackendTrial(backend="broken", fault="fails: so"),
    )
    assert choose((eager, slower, faster, broken), wanted=FASTEST, least_gain=0.05) is faster
    assert choose((eager, slower, broken), wanted=FASTEST, least_gain=0.05) is eager
    assert choose((eager, slower), wanted="slower", least_gain=0.05) is slower
    assert choose((eager, broken), wanted="broken", least_gain=0.05) is eager
