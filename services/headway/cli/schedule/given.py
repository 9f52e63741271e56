"""A schedule of the user's, from a file."""

import json
from dataclasses import replace
from pathlib import Path

from headway.cli.placement.files import read_text
from headway.cli.schedule.times import parse_times
from headway.core.codec import from_document
from headway.core.errors import InvalidArgumentError
from headway.core.exports.torch_pipelining import read_torch_csv
from headway.core.schedule_search import ScheduleAction, ScheduleReport, ScheduleSearch, search_of


def given_search(
    file: Path, action: ScheduleAction, *, times: str | None, memory: float | None, effort: float = 1.0
) -> ScheduleSearch:
    """Reads a torch CSV, or what --out wrote; InvalidArgumentError names rank and step, or the field."""
    text = read_text(file)
    if file.suffix == ".json":
        schedule = from_document(ScheduleReport, _document(text, file), path=str(file)).schedule
        placement = schedule.placement if memory is None else replace(schedule.placement, memory=memory)
        orders = tuple(tuple((run.task, run.micro_batch) for run in runs) for runs in schedule.runs_by_device)
        return search_of(placement, schedule.num_micro_batches, action=action, orders=orders, effort=effort)
    if times is None:
        raise InvalidArgumentError(
            f"{file} does not say how long tasks take.", hint="Give --times F=1,I=1,W=1.", field="times"
        )
    given = read_torch_csv(text, file=str(file), times=parse_times(times), memory=memory)
    return search_of(
        given.placement,
        given.num_micro_batches,
        action=action,
        orders=given.orders,
        places=given.places,
        effort=effort,
    )


def _document(text: str, file: Path) -> object:
    try:
        return json.loads(text)
    except json.JSONDecodeError as error:
        raise InvalidArgumentError(
            f"{file}, line {error.lineno}: {error.msg}.", hint="`headway plan schedule --out` writes such a file."
        ) from error
    except (ValueError, RecursionError) as error:  # numbers of thousands of digits, lists a thousand deep
        raise InvalidArgumentError(
            f"{file} cannot be read: {error}.", hint="`headway plan schedule --out` writes such a file."
        ) from error
