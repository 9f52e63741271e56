"""The verdicts on made-up timings of the kernels, and what is said of what was not run."""

from collections.abc import Iterator

import pytest
from rich.console import Console

from benchmarks.kernels.batch import BATCHES, num_cold_buffers
from benchmarks.kernels.peers import PEERS, AbsentError, peer_timings
from benchmarks.kernels.report import absences, document_of, print_measured
from benchmarks.kernels.targets import BALANCED, IMBALANCED, MAX_US, Verdict, verdicts_of
from benchmarks.kernels.timings import (
    Bandwidths,
    DecodeTiming,
    EngineTiming,
    Failure,
    KernelTiming,
    Measured,
    MergeTiming,
    PeerTiming,
    StepTiming,
)

BANDWIDTHS = Bandwidths(memory=4e6, to_host=5e4, to_device=4e4)  # bytes a microsecond


def decodes(*, share: float = 0.95, **changed_us: float) -> list[DecodeTiming]:
    """Every batch of the benchmark at a share of the copy bandwidth."""
    times_us = {batch.name: batch.num_bytes / BANDWIDTHS.memory / share for batch in BATCHES} | changed_us
    return [DecodeTiming(batch.name, batch.num_bytes, times_us[batch.name], merge_us=1.0) for batch in BATCHES]


def verdict_on(measured: Measured, start: str) -> Verdict:
    found = [verdict for verdict in verdicts_of(measured) if verdict.title.startswith(start)]
    assert len(found) == 1, [verdict.title for verdict in found]
    return found[0]


@pytest.mark.parametrize(
    ("num_bytes", "target"),
    [(512e6, 0.92), (511e6, 0.80), (128e6, 0.80), (127e6, 0.60), (32e6, 0.60), (31e6, None)],
)
def test_the_more_is_read_the_larger_a_share_is_wanted(num_bytes: float, target: float | None) -> None:
    measured = Measured(BANDWIDTHS, decodes=[DecodeTiming("b", int(num_bytes), num_bytes / 4e6 / 0.85, merge_us=1)])
    shares = [verdict for verdict in verdicts_of(measured) if verdict.title.startswith("decode b,")]
    assert [verdict.target for verdict in shares] == ([] if target is None else [target])
    for verdict in shares:
        assert verdict.value == pytest.approx(0.85)
        assert verdict.is_met == (verdict.target < 0.85)


def test_every_batch_of_bfloat16_that_is_large_enough_has_a_share() -> None:
    titles = [verdict.title for verdict in verdicts_of(Measured(BANDWIDTHS, decodes=decodes()))]
    shared = {title.removeprefix("decode ").split(", ")[0] for title in titles if "copy bandwidth" in title}
    assert shared == {"8 x 2K", "32 x 1K", "32 x 2K", "64 x 4K", "32 x 3K", "1 x 64K + 31 x 1K"}


def test_short_batches_have_a_limit_of_their_own() -> None:
    measured = Measured(BANDWIDTHS, decodes=decodes(**{"1 x 1K": 8.0, "1 x 4K": 11.1}))
    assert str(verdict_on(measured, "decode 1 x 1K")) == "decode 1 x 1K: 8.0 us, target at most 8.0 us: met"
    assert str(verdict_on(measured, "decode 1 x 4K")) == "decode 1 x 4K: 11.1 us, target at most 11.0 us: missed"


def test_fp8_is_held_against_bfloat16_of_the_same_lengths() -> None:
    measured = Measured(BANDWIDTHS, decodes=decodes(**{"32 x 2K": 80.0, "32 x 2K, fp8": 50.0, "64 x 4K, fp8": 1e9}))
    met, missed = (verdict_on(measured, f"decode {batch}, fp8 over") for batch in ("32 x 2K", "64 x 4K"))
    assert met.value == pytest.approx(1.6)
    assert (met.is_met, missed.is_met) == (True, False)


def test_a_batch_out_of_balance_is_held_against_the_same_bytes_in_balance() -> None:
    sizes = {batch.name: batch.num_bytes for batch in BATCHES}
    assert sizes[IMBALANCED] == sizes[BALANCED]
    measured = Measured(BANDWIDTHS, decodes=decodes(**{BALANCED: 100.0, IMBALANCED: 126.0}))
    verdict = verdict_on(measured, f"decode {IMBALANCED} over")
    assert str(verdict).endswith("1.26x, target at most 1.25x: missed")


def test_what_moves_bytes_is_held_against_the_way_that_it_takes() -> None:
    moves = [
        KernelTiming("copy", 1000, 0.85 * 4e9, "B", path="memory"),
        KernelTiming("out", 2000, 0.86 * 1e8, "B", path="to_host"),
        KernelTiming("in", 2000, 0.84 * 8e7, "B", path="to_device"),
        KernelTiming("small", 1000, 63e6, "B", path="memory"),
        KernelTiming("computes", 1000, 1e12, "FLOP"),
    ]
    verdicts = verdicts_of(Measured(BANDWIDTHS, kernels=moves))
    found = {verdict.title.split(",")[0]: verdict.is_met for verdict in verdicts if verdict.value is not None}
    assert found == {"copy": True, "out": True, "in": False}


def test_merges_and_whole_steps() -> None:
    measured = Measured(
        BANDWIDTHS,
        merges=[MergeTiming("8 x b", us=5.1, attention_us=100)],
        steps=[StepTiming(1, num_bytes=int(16e9), replayed_us=5100, launched_us=9000, device_us=4900)],
    )
    assert verdict_on(measured, "cache-parallel merge, 8 x b").is_met is False
    assert verdict_on(measured, "Llama 3 8B, batch 1, of the roofline by device").is_met is True
    wall = verdict_on(measured, "Llama 3 8B, batch 1, of the roofline by wall")
    assert wall.value == pytest.approx(4000 / 5100)
    assert wall.is_met is False


def test_what_fails_is_a_line_and_what_was_measured_before_stays() -> None:
    def some() -> Iterator[DecodeTiming]:
        yield decodes()[0]
        raise RuntimeError("an illegal address\nwas read")

    measured = Measured(BANDWIDTHS)
    measured.collect("decode", some(), measured.decodes)
    measured.failures.append(Failure("model", "OutOfMemoryError"))
    assert [timing.batch for timing in measured.decodes] == ["1 x 1K"]
    lines = [str(verdict) for verdict in verdicts_of(measured)]
    assert "decode 1 x 4K, target at most 11.0 us: not run: RuntimeError: an illegal address" in lines
    assert "the rest of decode, target at least 60.0 %: not run: RuntimeError: an illegal address" in lines
    assert "the rest of model, target at least 80.0 %: not run: OutOfMemoryError" in lines
    assert verdict_on(measured, "decode 1 x 1K").is_met is not None


def test_peers_that_cannot_be_run_say_why(monkeypatch: pytest.MonkeyPatch) -> None:
    def absent(batch: object) -> float:
        raise AbsentError("there is no vllm here")

    def broken(batch: object) -> float:
        raise ValueError("no kernel for sm_90")

    for name, peer in {"torch SDPA": lambda batch: 12.0, "FlexAttention": broken, "vLLM": absent}.items():
        monkeypatch.setitem(PEERS, name, peer)
    measured = Measured(BANDWIDTHS, decodes=decodes(), peers=list(peer_timings()))
    lines = absences(measured)
    assert "FlexAttention: not run: ValueError: no kernel for sm_90" in lines
    assert "vLLM: not run: there is no vllm here" in lines
    assert not any(line.startswith("torch SDPA") for line in lines)
    some = [PeerTiming("a", "P", 1.0), PeerTiming("b", "P", None, "takes no fp8"), PeerTiming("c", "P", None, "x")]
    assert absences(Measured(BANDWIDTHS, peers=some)) == ["P, b: not run: takes no fp8", "P, c: not run: x"]


def test_everything_is_printed_and_written() -> None:
    measured = Measured(
        BANDWIDTHS,
        decodes=decodes(),
        kernels=[KernelTiming("copy", 1000, 3.5e9, "B", path="memory")],
        steps=[StepTiming(64, num_bytes=int(16e9), replayed_us=5100, launched_us=9000, device_us=4900)],
        engine_steps=[EngineTiming(1, waiting_us=100, ahead_us=50)],
        peers=[PeerTiming("1 x 1K", "vLLM", None, "there is no vllm here")],
    )
    verdicts, console = verdicts_of(measured), Console(record=True, width=200)
    print_measured(console, measured, verdicts)
    text = console.export_text()
    assert all(str(verdict) in text for verdict in verdicts)
    assert "vLLM: not run: there is no vllm here" in text
    document = document_of(measured, verdicts, device="a GPU")
    assert [target["is_met"] for target in document["targets"]] == [verdict.is_met for verdict in verdicts]
    assert {target["title"] for target in document["targets"]} >= {f"decode {batch}" for batch in MAX_US}
    assert document["bandwidths"]["memory"] == 4e6


def test_buffers_take_turns_until_the_cache_has_forgotten_them() -> None:
    for num_bytes in (4 << 20, 64 << 20, 1 << 30):
        assert num_cold_buffers(num_bytes) * num_bytes > 512 << 20
    assert num_cold_buffers(1) == 200
    assert [batch.num_buffers for batch in BATCHES] == [num_cold_buffers(batch.num_bytes) for batch in BATCHES]
