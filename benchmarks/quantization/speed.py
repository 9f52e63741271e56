"""How fast a model decodes and how much memory it takes, each way of holding its weights in a process of its own."""

import multiprocessing
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass
from pathlib import Path

import psutil

from headway.checkpoint.model_directory import read_checkpoint
from headway.runner.model_runner import ModelRunner

CONTEXT_TOKENS = 64


@dataclass(frozen=True, slots=True, kw_only=True)
class Format:
    """How the weights are held."""

    dtype: str
    quantization: str | None = None

    @property
    def title(self) -> str:
        return f"{self.quantization} / {self.dtype}" if self.quantization else self.dtype


@dataclass(frozen=True, slots=True, kw_only=True)
class Speed:
    """One format's memory and times.

    Attributes:
        weight_bytes: as the planner counts them.
        loaded_bytes: by how much the process grew when the model was loaded.
        peak_bytes: by how much it had grown at most until then.
        step_s: seconds of a decode step, by the number of sequences: the quickest, which neighbours disturbed least.
        prefill_s: of the prompt, likewise.
    """

    format: Format
    weight_bytes: int
    loaded_bytes: int
    peak_bytes: int
    step_s: dict[int, float]
    prefill_s: float


def measure_each(
    directory: Path, formats: list[Format], *, rows: list[int], prompt_tokens: int, num_threads: int, repeats: int
) -> list[Speed]:
    """One format after the other; the others' memory is gone by then."""
    context = multiprocessing.get_context("spawn")
    with ProcessPoolExecutor(max_workers=1, mp_context=context, max_tasks_per_child=1) as pool:
        runs = [
            pool.submit(
                measure,
                directory,
                wanted,
                rows=rows,
                prompt_tokens=prompt_tokens,
                num_threads=num_threads,
                repeats=repeats,
            )
            for wanted in formats
        ]
        return [run.result() for run in runs]


def measure(
    directory: Path, wanted: Format, *, rows: list[int], prompt_tokens: int, num_threads: int, repeats: int
) -> Speed:
    checkpoint = read_checkpoint(directory, dtype=wanted.dtype, quantization=wanted.quantization)
    process = psutil.Process()
    before_bytes = process.memory_info().rss
    runner = ModelRunner(checkpoint, num_blocks=1, num_threads=num_threads)
    return Speed(
        format=wanted,
        weight_bytes=runner.weight_bytes,
        loaded_bytes=process.memory_info().rss - before_bytes,
        peak_bytes=_peak_bytes() - before_bytes,
        step_s={count: _quickest_s(runner, repeats, num_decodes=count) for count in rows},
        prefill_s=_quickest_s(runner, max(1, repeats // 4), prefill_tokens=prompt_tokens),
    )


def _quickest_s(runner: ModelRunner, repeats: int, *, num_decodes: int = 0, prefill_tokens: int = 0) -> float:
    return min(
        runner.measure(
            prefill_tokens=prefill_tokens,
            num_decodes=num_decodes,
            context_tokens=CONTEXT_TOKENS if num_decodes else 0,
        )
        for _ in range(repeats)
    )


def _peak_bytes() -> int:
    """The process's largest resident size so far."""
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise RuntimeError("/proc/self/status has no VmHWM")
