"""Models are found by name, without loading torch."""

import subprocess
import sys

import pytest

from headway.core.errors import InvalidArgumentError
from headway.profiler.zoo.registry import find, models, names


def test_every_name_finds_its_model() -> None:
    assert len(set(names())) == len(names())
    assert [find(name) for name in names()] == list(models())


def test_the_suffix_finds_the_small_variant() -> None:
    small = find("gpt3-175b-small")
    assert small == find("gpt3-175b").small()
    assert (small.name, small.family, small.expected_parameters) == ("gpt3-175b-small", "gpt", None)


@pytest.mark.parametrize(
    ("name", "nearest"),
    [("gpt3-175", "gpt3-175b"), ("LLAMA-7B", "llama-7b"), ("candle_uno", "candle-uno"), ("mmt-smal", "mmt")],
)
def test_an_unknown_name_is_answered_with_the_nearest(name: str, nearest: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"no model '{name}'") as caught:
        find(name)
    assert nearest in caught.value.hint
    assert caught.value.field == "model"


def test_a_name_like_no_other_is_answered_with_all() -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        find("???")
    assert all(name in caught.value.hint for name in names())


def test_finding_a_model_does_not_load_torch() -> None:
    script = "import sys; from headway.profiler.zoo.registry import find; find('dlrm'); print('torch' in sys.modules)"
    result = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert result.stdout.strip() == "False"


@pytest.mark.parametrize(
    ("name", "batch", "seq", "field"),
    [("gpt3-1b", 1, 2049, "seq"), ("gpt3-1b", 1, 0, "seq"), ("dlrm", 1, 8, "seq"), ("dlrm", 0, None, "batch")],
)
def test_inputs_that_a_model_cannot_have_are_refused(name: str, batch: int, seq: int | None, field: str) -> None:
    with pytest.raises(InvalidArgumentError) as caught:
        find(name).example_inputs(batch=batch, seq=seq)
    assert caught.value.field == field


def test_example_inputs_are_the_papers_and_the_same_in_each_call() -> None:
    (tokens,) = find("alpa-gpt3-39b").example_inputs(batch=3)
    assert (tokens.shape, tokens.device.type, tokens.dtype.is_floating_point) == ((3, 1024), "meta", False)
    source, target = find("tessel-mt5-1.8b").example_inputs(batch=2, seq=7, device="cpu")
    assert source.shape == target.shape == (2, 7)
    assert source.max() > 100_000
    again, _ = find("tessel-mt5-1.8b").example_inputs(batch=2, seq=7, device="cpu")
    assert source.equal(again)
