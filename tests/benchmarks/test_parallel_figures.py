"""What the figures of chapter 4 rest on: batches on a node, findings, and two real processes that are timed."""

import pytest

from benchmarks.parallel.findings import find
from benchmarks.parallel.fit import SIZES, time_sums
from benchmarks.parallel.measured import Measured, decode_rate
from benchmarks.parallel.node import A5000_NODE, LLAMA_7B, PYTHON_TABLE_ENTRY_S, capacity_tokens, decode, draw_lengths
from benchmarks.parallel.pair import serve_pair
from benchmarks.parallel.sweep import CASES, DECODE, PREFIX, crossover, sweep
from headway.core.parallel_config import SINGLE, ParallelConfig

TP, CP = ParallelConfig(tp=4), ParallelConfig(cp=4)


def test_even_batches_have_no_straggler_and_uneven_ones_have() -> None:
    even = [decode(LLAMA_7B, layout, A5000_NODE, [20_000] * 32).tokens_per_s for layout in (SINGLE, CP)]
    assert even[0] > even[1]  # the same work, and nothing sent
    uneven = [20_000] * 32
    uneven[0] = 300_000
    dp, cp = (decode(LLAMA_7B, layout, A5000_NODE, uneven) for layout in (SINGLE, CP))
    assert dp.cost.compute_s > 1.3 * cp.cost.compute_s


@pytest.mark.parametrize("layout", [SINGLE, TP, CP], ids=str)
def test_what_does_not_fit_wanders_and_takes_turns(layout: ParallelConfig) -> None:
    capacity = capacity_tokens(LLAMA_7B, layout, A5000_NODE) * (4 // layout.num_ranks)
    length = int(capacity / 64) - 1
    fits = decode(LLAMA_7B, layout, A5000_NODE, [length] * 64)
    pressed = decode(LLAMA_7B, layout, A5000_NODE, [length] * 128)
    assert fits.swapped_share == 0
    assert pressed.swapped_share == pytest.approx(0.5, abs=0.01)
    assert pressed.tokens_per_s < fits.tokens_per_s
    assert pressed.cost.compute_s == pytest.approx(2 * fits.cost.compute_s, rel=0.01)


def test_drawn_lengths_have_their_mean_and_their_seed() -> None:
    lengths = draw_lengths(20_000, mean=1000, sigma=0.9, seed=3, prefix=100)
    assert sum(lengths) / len(lengths) == pytest.approx(1100, rel=0.03)
    assert lengths == draw_lengths(20_000, mean=1000, sigma=0.9, seed=3, prefix=100)


def test_cache_parallel_overtakes_tensor_parallel_at_the_chapters_length() -> None:
    """About 10K for one layer with the chapter's block tables; far later for all layers of a model."""
    one_layer = crossover(CASES[0], batch=32, table_entry_s=PYTHON_TABLE_ENTRY_S, is_layer=True)
    whole = crossover(CASES[0], batch=32, table_entry_s=PYTHON_TABLE_ENTRY_S, is_layer=False)
    assert one_layer is not None
    assert whole is not None
    assert 5_000 < one_layer < 15_000
    assert whole > 10 * one_layer


def test_findings_name_every_batch_and_length_once() -> None:
    means = (1_000, 10_000, 50_000)
    points = [sweep(CASES[0], lengths, means=means) for lengths in (PREFIX, DECODE)]
    findings = {finding.text: finding for finding in find(*points)}
    ahead = findings["cp is ahead of tp from 10K on, prefixes"]
    assert len(ahead.agreeing) == 2 * 5
    assert not ahead.differing
    sends = findings["cp communicates for less time than tp"]
    assert not sends.agreeing
    assert len(sends.differing) == 3 * 5


def test_two_processes_are_timed() -> None:
    samples = serve_pair(time_sums, SIZES[:4], 8)
    assert [sample["num_bytes"] for sample in samples] == list(SIZES[:4])
    assert all(0 < sample["tenth_s"] <= sample["half_s"] for sample in samples)


def test_a_decode_is_as_fast_as_its_mean_step() -> None:
    """Steps of 10 ms at the first context and 20 ms at the second: 15 ms in the mean between them."""
    points = [
        Measured(layout="tp", batch=16, context_tokens=context, step_s=step_s, attention_s=0.0, waiting_s=0.0)
        for context, step_s in ((256, 0.01), (1024, 0.02))
    ]
    assert decode_rate(points, 1) == pytest.approx(points[0].layer_tokens_per_s)
    assert decode_rate(points, 769) == pytest.approx(points[0].layer_tokens_per_s / 1.5)
