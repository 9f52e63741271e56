"""Blocks saved by sharing, counted in a real engine on a runner without a model."""

import json
from pathlib import Path

import pytest

from benchmarks.engine.clock import VirtualClock
from benchmarks.engine.dataset import ALPACA, SHAREGPT, Dataset
from benchmarks.engine.runner import SimulatedRunner
from benchmarks.sharing.case import CASES, REPORTED, Case, Method
from benchmarks.sharing.measurement import SharingCount, measure_sharing
from benchmarks.sharing.prompt import Corpus
from deploy.demo.corpus import training_texts
from deploy.demo.tokenizer import train_tokenizer
from headway.core.latency import LatencyModel
from headway.core.request import SamplingParams
from headway.engine.batch import ScheduledSequence, StepBatch
from headway.engine.config import EngineConfig
from headway.engine.sequence import Sequence

INSTANT = LatencyModel(
    base_s=0.0, per_prefill_token_s=0.0, per_prefill_pair_s=0.0, per_decode_s=0.0, per_context_token_s=0.0
)
CONFIG = EngineConfig(num_blocks=4096, max_model_len=2048, max_num_seqs=12, max_num_batched_tokens=512)
EVEN = Dataset(name="even", prompt_mean=64, prompt_sigma=0.0, output_mean=128, output_sigma=0.0)


@pytest.fixture(scope="module")
def tokenizer_file(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("tokenizer") / "tokenizer.json"
    train_tokenizer(training_texts(), vocab_size=400).save(str(path))
    return path


def saved(case: Case, tokenizer_file: Path) -> float:
    corpus = Corpus(tokenizer_file, seed=1)
    runner = SimulatedRunner(INSTANT, clock=VirtualClock())
    return measure_sharing(case, runner, config=CONFIG, corpus=corpus, num_requests=36).saved


def test_count_compares_tables_with_their_distinct_blocks() -> None:
    def share(*table: int) -> ScheduledSequence:
        sequence = Sequence("r", [1], 1, SamplingParams(), 0.0, block_table=list(table))
        return ScheduledSequence(sequence, 1, samples=True)

    count = SharingCount()
    count.observe(StepBatch([share(0, 1, 2), share(0, 1, 3)], num_tokens=2))
    assert count.saved == [pytest.approx(2 / 6)]


@pytest.mark.parametrize("size", [2, 4, 6])
def test_samples_share_their_prompt(size: int, tokenizer_file: Path) -> None:
    """Of 4 prompt blocks and 8 output blocks, of which half are there on average."""
    found = saved(Case(dataset=EVEN, method=Method.PARALLEL, size=size), tokenizer_file)
    assert found == pytest.approx((size - 1) / size * 4 / 8.5, rel=0.15)


def test_requests_share_a_prefix(tokenizer_file: Path) -> None:
    """Twelve at once share 10 whole blocks, beside 4 of their own prompt and 4 of output on average."""
    found = saved(Case(dataset=EVEN, method=Method.PREFIX, size=160), tokenizer_file)
    assert found == pytest.approx(11 / 12 * 10 / 18.5, rel=0.15)


def test_what_the_dissertation_reports_is_measured() -> None:
    assert {(case.dataset.name, case.method) for case in CASES} >= REPORTED.keys()


def test_corpus_is_endless_and_seeded(tokenizer_file: Path) -> None:
    first, second = (Corpus(tokenizer_file, seed=4) for _ in range(2))
    assert first.take(50_000) == second.take(30_000) + second.take(20_000)
    vocabulary = json.loads(tokenizer_file.read_text())["model"]["vocab"]
    assert set(first.take(1000)) <= set(vocabulary.values())


def test_datasets_have_the_dissertations_ratios() -> None:

    assert SHAREGPT.prompt_mean / ALPACA.prompt_mean == pytest.approx(8.4, abs=0.05)
    assert SHAREGPT.output_mean / ALPACA.output_mean == pytest.approx(5.8, abs=0.05)
