"""The public traces of Azure Functions as requests for models: functions are dealt out to models in turn, as AlpaServe
does (section 4.6.1). Pure: files come as bytes.

2019 counts the invocations of each function in each minute of a day; 2021 has the end and duration of each.
"""

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from headway.planner.placement.workload import Workload
from headway.planner.placement.workloads.bound import MAX_REQUESTS, check_num_requests
from headway.planner.placement.workloads.csv_table import CsvTable
from headway.planner.placement.workloads.trace import no_requests

_MINUTE_S = 60.0
_LATEST_S = 1e12


def read_azure(
    content: bytes, *, file: str, models: Sequence[str], duration_s: float | None, rng: np.random.Generator
) -> Workload:
    """Reads either format, told apart by its header; requests have no objectives of their own (NaN).

    Args:
        duration_s: of the trace's beginning; None for all of it.
        rng: for the moments within the minutes that 2019 counts in.

    Raises:
        InvalidArgumentError: names file and line.
    """
    header = CsvTable(content, file=file, columns=()).header
    if "HashFunction" in header:
        arrival_s, model = _read_counts(content, file, len(models), duration_s, rng)
    else:
        arrival_s, model = _read_invocations(content, file, len(models), duration_s)
    if not len(arrival_s):
        raise no_requests(file)
    order = np.argsort(arrival_s, kind="stable")
    return Workload(
        models=tuple(models),
        arrival_s=arrival_s[order],
        model=model[order].astype(np.int32),
        slo_s=np.full(len(order), np.nan),
    )


def _read_counts(
    content: bytes, file: str, num_models: int, duration_s: float | None, rng: np.random.Generator
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    table = CsvTable(content, file=file, columns=("HashFunction", "1"))
    minutes = [name for name in table.header if name.isdecimal()]
    if duration_s is not None:
        minutes = minutes[: max(1, int(np.ceil(duration_s / _MINUTE_S)))]
    table = CsvTable(content, file=file, columns=("HashFunction", *minutes))
    counts = np.zeros((num_models, len(minutes)), dtype=np.int64)
    num_functions = 0
    for chunk in table.chunks():
        owners = (num_functions + np.arange(len(chunk.lines))) % num_models
        num_functions += len(chunk.lines)
        for minute, name in enumerate(minutes):
            np.add.at(
                counts[:, minute],
                owners,
                np.array(chunk.numbers(name, least=0.0, default=0.0, most=MAX_REQUESTS), dtype=np.int64),
            )
    flat = counts.ravel()
    check_num_requests(float(flat.sum()), what=file, hint="Give a shorter --duration, or a smaller file.")
    start_s = np.tile(np.arange(len(minutes)) * _MINUTE_S, num_models)
    arrival_s = np.repeat(start_s, flat) + rng.random(int(flat.sum())) * _MINUTE_S
    model = np.repeat(np.repeat(np.arange(num_models), len(minutes)), flat)
    return _until(duration_s, arrival_s, model)


def _read_invocations(
    content: bytes, file: str, num_models: int, duration_s: float | None
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    table = CsvTable(content, file=file, columns=("func", "end_timestamp", "duration"))
    functions: dict[str, int] = {}
    times: list[NDArray[np.float64]] = []
    owners: list[NDArray[np.int64]] = []
    for chunk in table.chunks():
        end_s = np.array(chunk.numbers("end_timestamp", least=-_LATEST_S, most=_LATEST_S))
        times.append(end_s - np.array(chunk.numbers("duration", least=0.0, most=_LATEST_S)))
        numbers = [functions.setdefault(name, len(functions)) for name in chunk.texts("func")]
        owners.append(np.array(numbers, dtype=np.int64) % num_models)
    if not times:
        return np.empty(0), np.empty(0, dtype=np.int64)
    arrival_s = np.concatenate(times)
    return _until(duration_s, arrival_s - arrival_s.min(), np.concatenate(owners))


def _until(
    duration_s: float | None, arrival_s: NDArray[np.float64], model: NDArray[np.int64]
) -> tuple[NDArray[np.float64], NDArray[np.int64]]:
    if duration_s is None:
        return arrival_s, model
    is_early = arrival_s < duration_s
    return arrival_s[is_early], model[is_early]
