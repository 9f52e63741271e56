"""Reads recorded requests. Pure: files come as bytes."""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.core.errors import InvalidArgumentError
from headway.planner.placement.workload import Lengths, Workload
from headway.planner.placement.workloads.bound import check_num_requests
from headway.planner.placement.workloads.csv_table import Chunk, CsvTable

_MS = 1e-3
_LENGTHS = ("prompt_tokens", "output_tokens")
_MOST_TOKENS = 10**8


def read_trace(content: bytes, *, file: str, models: Sequence[str]) -> Workload:
    """Reads CSV with the columns time_s, model and, where requests have objectives of their own, slo_s; prompt_tokens
    and output_tokens of models that generate.

    An absent or empty slo_s is NaN in the result: the model's objective is meant. 'inf' is none at all.

    Raises:
        InvalidArgumentError: names file and line where times are negative or fall, a model is not one of `models`, or
            a number is none.
    """
    return _read(content, file=file, models=models, time="time_s", slo="slo_s", slo_unit_s=1.0)


def read_replay(content: bytes, *, file: str, models: Sequence[str]) -> Workload:
    """Reads CSV with the columns at_s (seconds since 1970), model, slo_ms, prompt_tokens and output_tokens, as a router
    records them; further columns are ignored.

    The first request is at 0. Else as `read_trace`.
    """
    recorded = _read(content, file=file, models=models, time="at_s", slo="slo_ms", slo_unit_s=_MS)
    return recorded.take(slice(None), start_s=float(recorded.arrival_s[0]))


def no_requests(file: str) -> InvalidArgumentError:
    return InvalidArgumentError(f"{file} has no requests.", hint="Record some traffic first.", field=file)


def _read(content: bytes, *, file: str, models: Sequence[str], time: str, slo: str, slo_unit_s: float) -> Workload:
    numbers = {name: number for number, name in enumerate(models)}
    table = CsvTable(content, file=file, columns=(time, "model"), optional=(slo, *_LENGTHS))
    times: list[NDArray[np.float64]] = []
    places: list[NDArray[np.int32]] = []
    slos: list[NDArray[np.float64]] = []
    lengths: list[NDArray[np.int32]] = []
    last_s, num_requests = 0.0, 0
    for chunk in table.chunks():
        num_requests += len(chunk.lines)
        check_num_requests(num_requests, what=file, hint="Cut the file.")
        arrival_s = np.array(chunk.numbers(time, least=0.0))
        _check_order(arrival_s, last_s, chunk, time)
        last_s = float(arrival_s[-1])
        times.append(arrival_s)
        places.append(np.array(_models(chunk, numbers), dtype=np.int32))
        slos.append(_slos(chunk, slo) * slo_unit_s)
        lengths.append(np.array([_tokens(chunk, name) for name in _LENGTHS], np.int32))
    if not times:
        raise no_requests(file)
    return Workload(
        models=tuple(models),
        arrival_s=np.concatenate(times),
        model=np.concatenate(places),
        slo_s=np.concatenate(slos),
        lengths=_joined(lengths) if set(_LENGTHS) & set(table.header) else None,
    )


def _joined(chunks: Sequence[NDArray[np.int32]]) -> Lengths:
    prompt, output = np.concatenate(chunks, axis=1)
    return Lengths(prompt=prompt, output=output)


def _tokens(chunk: Chunk, name: str) -> list[int]:
    """Reads a number of tokens; an empty field is 0."""
    if not chunk.has(name):
        return [0] * len(chunk.lines)
    return chunk.convert(
        name,
        lambda text: _whole(text) if text.strip() else 0,
        fault=lambda text: f"has {name} '{text}', which should be a whole number from 0 to {_MOST_TOKENS}",
    )


def _whole(text: str) -> int:
    number = int(text)
    if not 0 <= number <= _MOST_TOKENS:
        raise ValueError
    return number


def _models(chunk: Chunk, numbers: dict[str, int]) -> list[int]:
    return chunk.convert(
        "model",
        numbers.__getitem__,
        fault=lambda text: f"names the model '{text}', which is not to be placed",
        hint=f"Known are {', '.join(numbers)}; add it, or remove its requests.",
    )


def _slos(chunk: Chunk, name: str) -> NDArray[np.float64]:
    if not chunk.has(name):
        return np.full(len(chunk.lines), np.nan)

    def read(text: str) -> float:
        if not text.strip():
            return np.nan
        value = float(text)
        if not value > 0:
            raise ValueError
        return value

    fault = f"{name} '{{}}', which should be a number above 0"
    return np.array(chunk.convert(name, read, fault=lambda text: f"has {fault.format(text)}"))


def _check_order(arrival_s: NDArray[np.float64], last_s: float, chunk: Chunk, name: str) -> None:
    is_wrong = np.diff(arrival_s, prepend=last_s) < 0
    is_wrong |= ~np.isfinite(arrival_s)
    if is_wrong.any():
        first = int(np.argmax(is_wrong))
        before_s = float(arrival_s[first - 1]) if first else last_s
        problem = f"has {name} {arrival_s[first]:g}" + (
            f" after {before_s:g}" if np.isfinite(arrival_s[first]) else ", which is no time"
        )
        chunk.table.fail(chunk.lines[first], problem, hint="Sort the requests by time.")
