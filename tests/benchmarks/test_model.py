"""The benchmark checkpoint: real formats, and the same bytes every time."""

import json
from dataclasses import replace
from pathlib import Path

import pytest
import torch
from tokenizers import Tokenizer

from benchmarks import model
from benchmarks.model import BENCHMARK_SPEC, make_benchmark_model, make_tokenizer
from headway.core.hf_config import spec_from_config

SMALL = replace(BENCHMARK_SPEC, vocab_size=1000, hidden_size=64, num_layers=2, intermediate_size=96, head_dim=8)


@pytest.fixture(autouse=True)
def few_words(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "NUM_WORDS", 300)
    torch.set_num_threads(1)


def test_checkpoint_is_the_same_every_time(tmp_path: Path) -> None:
    first, second = (make_benchmark_model(tmp_path / name, spec=SMALL) for name in ("a", "b"))
    names = sorted(path.name for path in first.iterdir())
    assert {"config.json", "model.safetensors", "tokenizer.json", "tokenizer_config.json"} <= set(names)
    for name in names:
        assert (first / name).read_bytes() == (second / name).read_bytes(), name


def test_checkpoint_is_reused(tmp_path: Path) -> None:
    directory = make_benchmark_model(tmp_path / "model", spec=SMALL)
    made_at = (directory / "model.safetensors").stat().st_mtime_ns
    make_benchmark_model(directory, spec=SMALL)
    assert (directory / "model.safetensors").stat().st_mtime_ns == made_at


def test_config_describes_the_model_that_was_asked_for(tmp_path: Path) -> None:
    directory = make_benchmark_model(tmp_path / "model", spec=SMALL)
    spec = spec_from_config(json.loads((directory / "config.json").read_text()))
    assert spec.num_parameters == SMALL.num_parameters
    assert (spec.num_heads, spec.num_kv_heads, spec.dtype) == (8, 4, "float32")
    assert spec.eos_token_ids == SMALL.eos_token_ids


def test_tokenizer_has_the_whole_vocabulary_and_takes_any_text() -> None:
    tokenizer = make_tokenizer(1000)
    assert isinstance(tokenizer, Tokenizer)
    assert tokenizer.get_vocab_size() == 1000
    text = "trai bou — naïve 列車 🚆\n"
    assert tokenizer.decode(tokenizer.encode(text).ids) == text


def test_tokenizer_is_filled_up_when_words_run_out() -> None:
    assert make_tokenizer(5000).get_vocab_size() == 5000
