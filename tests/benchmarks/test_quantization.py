"""The comparison of weights in int8 with the stored ones."""

from pathlib import Path

import pytest

from benchmarks.quantization.accuracy import Text, compare, random_texts
from benchmarks.quantization.speed import Format, measure
from deploy.demo.dialogues import IGNORED
from tests.checkpoints import make_checkpoint


@pytest.fixture(scope="module")
def directory(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return make_checkpoint(tmp_path_factory.mktemp("llama"), "llama")


def test_only_positions_with_a_target_count(directory: Path) -> None:
    texts = [Text([1, 2, 3, 4], [2, IGNORED, 4, IGNORED]), Text([5, 6], [6, 7])]
    assert compare(directory, texts, dtype="float32", quantization="int8").num_positions == 4


def test_rounding_shows_but_stays_small(directory: Path) -> None:
    found = compare(directory, random_texts(512)[:2], dtype="float32", quantization="int8")
    assert 0 < found.mean_error < 0.1 * found.logit_deviation
    assert found.mean_error < found.max_error
    assert 0.8 < found.agreement <= 1
    assert found.rounded_perplexity == pytest.approx(found.kept_perplexity, rel=0.1)


def test_every_size_is_timed(directory: Path) -> None:
    wanted = Format(dtype="float32", quantization="int8")
    speed = measure(directory, wanted, rows=[1, 3], prompt_tokens=5, num_threads=1, repeats=2)
    assert speed.step_s.keys() == {1, 3}
    assert min(*speed.step_s.values(), speed.prefill_s) > 0
    assert speed.peak_bytes >= speed.loaded_bytes
    assert wanted.title == "int8 / float32"
