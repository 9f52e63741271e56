"""The ablations on a small model and with scripted costs."""

from dataclasses import replace
from pathlib import Path

import pytest
import torch
from rich.console import Console

from benchmarks import model
from benchmarks.ablation.kernel import BlockCosts, measure_costs
from benchmarks.ablation.report import block_size_table, draw, preemption_table
from benchmarks.ablation.service import Bench, compare_block_sizes
from benchmarks.engine.dataset import ALPACA
from benchmarks.model import BENCHMARK_SPEC, make_benchmark_model
from headway.checkpoint.model_directory import read_checkpoint
from headway.core.latency import LatencyModel

LATENCY = LatencyModel(
    base_s=0.01, per_prefill_token_s=1e-4, per_prefill_pair_s=1e-8, per_decode_s=1e-3, per_context_token_s=1e-6
)
COSTS = tuple(
    BlockCosts(block_size=size, attention_s=0.01, swap_out_s=0.001, swap_in_s=0.003, recompute_s=0.1)
    for size in (4, 16, 128)
)
BENCH = Bench(
    latency=LATENCY, attention_s=0.01, num_slots=8192, max_model_len=2048, swapped_tokens=512, num_lifetimes=8
)


def test_real_costs_are_measured(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(model, "NUM_WORDS", 300)
    torch.set_num_threads(1)
    small = replace(BENCHMARK_SPEC, vocab_size=1000, hidden_size=64, num_layers=1, intermediate_size=96, head_dim=8)
    checkpoint = read_checkpoint(make_benchmark_model(tmp_path / "model", spec=small))
    costs = measure_costs(checkpoint, 3, num_sequences=2, context_tokens=20, swapped_tokens=40)
    assert min(costs.attention_s, costs.swap_out_s, costs.swap_in_s, costs.recompute_s) > 0


def test_a_block_costs_its_part_of_the_way_out_and_in() -> None:
    assert COSTS[1].copy_block_s(512) == pytest.approx(0.002 / 32)


def test_slow_attention_slows_only_its_own_terms() -> None:
    slow = BENCH.simulation(replace(COSTS[0], attention_s=0.02)).latency
    assert slow.per_context_token_s == pytest.approx(2 * LATENCY.per_context_token_s)
    assert slow.per_prefill_pair_s == pytest.approx(2 * LATENCY.per_prefill_pair_s)
    assert replace(slow, per_context_token_s=1e-6, per_prefill_pair_s=1e-8) == LATENCY


def test_every_block_size_is_served_reported_and_drawn(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    tight = replace(BENCH, num_slots=2560)
    findings = list(compare_block_sizes(COSTS, reference=COSTS[1], roomy=BENCH, tight=tight))
    assert [found.costs.block_size for found in findings] == [4, 16, 128]
    assert all(found.recompute.num_preemptions > 0 < found.swap.num_preemptions for found in findings)
    console = Console(record=True, width=120)
    console.print(block_size_table(findings, contiguous_s=0.008))
    console.print(preemption_table(findings, swapped_tokens=512))
    assert "+25 %" in console.export_text()
    assert draw(findings, contiguous_s=0.008, name="x").read_bytes().startswith(b"\x89PNG")


def test_large_blocks_waste_memory_that_short_requests_need() -> None:
    tight = replace(BENCH, num_slots=4096, num_lifetimes=12)
    rates = [tight.sustained_rate_per_s(costs, ALPACA) for costs in COSTS[1:]]
    assert rates[0] > rates[1]
