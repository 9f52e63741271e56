"""Schedules in the CSV that torch.distributed.pipelining's runtime loads and torchtitan passes on: a row for each rank,
`2F0` for stage 2's forward task of micro-batch 0, I, W and B for its gradients of inputs, weights and both."""

import csv
import io
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from headway.core.errors import InvalidArgumentError
from headway.core.schedule import Dependency, Schedule, Task, TaskKind, TaskPlacement
from headway.core.stage_chain import stage_chain

_ACTION = re.compile(r"(\d+)([FIBW])(\d+)")
_COMMUNICATION = re.compile(r"\d+(SEND_F|RECV_F|SEND_B|RECV_B|UNSHARD|RESHARD|REDUCE_GRAD)\d*")
_OVERLAP = re.compile(r"\((.*)\)OVERLAP_F_B")
_KINDS = {"F": TaskKind.FORWARD, "B": TaskKind.BACKWARD, "I": TaskKind.INPUT, "W": TaskKind.WEIGHT}


@dataclass(frozen=True, slots=True)
class Action:
    """One entry: what a rank does next.

    Attributes:
        letter: F, I, W or B.
        rank, step: where it is in the file, from 0 on.
    """

    stage: int
    letter: str
    micro_batch: int
    rank: int
    step: int

    def __str__(self) -> str:
        return f"{self.stage}{self.letter}{self.micro_batch}"

    @property
    def place(self) -> str:
        return f"rank {self.rank}, step {self.step} ({self})"


@dataclass(frozen=True, slots=True, kw_only=True)
class ImportedSchedule:
    """A schedule of somebody's.

    Attributes:
        orders: by device, pairs of task and micro-batch.
        places: by device, where each of them is in the file.
    """

    placement: TaskPlacement
    num_micro_batches: int
    orders: tuple[tuple[tuple[int, ...], ...], ...]
    places: tuple[tuple[str, ...], ...]


def torch_csv(schedule: Schedule) -> str:
    """Writes a schedule; an adjacent I and W of one micro-batch stay apart, as torch joins them itself.

    Raises:
        InvalidArgumentError: names the task that such a file cannot say.
    """
    stages = stage_chain(schedule.placement)
    names: dict[int, str] = {}
    for number, stage in enumerate(stages):
        letters = (("F", stage.forward), ("B", stage.backward), ("I", stage.input), ("W", stage.weight))
        names |= {task: f"{number}{letter}" for letter, task in letters if task is not None}
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    for runs in schedule.runs_by_device:
        writer.writerow(f"{names[run.task]}{run.micro_batch}" for run in runs)
    return text.getvalue()


def read_torch_csv(
    text: str, *, file: str, times: Mapping[str, Sequence[float]], memory: float | None = None
) -> ImportedSchedule:
    """Reads a schedule; communication is left out, as it follows from the rest.

    Args:
        times: by letter, of a stage's task: one for all stages, or one for each. B is I and W together unless given.
        memory: of each device, in activations of a stage.

    Raises:
        InvalidArgumentError: names the rank and the step.
    """
    rows = [list(_row(row, rank, file)) for rank, row in enumerate(csv.reader(io.StringIO(text))) if row]
    actions = [action for row in rows for action in row]
    if not actions:
        raise InvalidArgumentError(f"{file} has no actions.", hint="Write a row for each rank, such as 0F0,0B0.")
    _check_counts(actions, file)
    splits = any(action.letter in "IW" for action in actions)
    placement, tasks = _placement(actions, len(rows), splits, times, memory, file)
    parts = {letter: "IW" if letter == "B" and splits else letter for letter in "FBIW"}
    orders = tuple(
        tuple((tasks[part, each.stage], each.micro_batch) for each in row for part in parts[each.letter])
        for row in rows
    )
    places = tuple(tuple(each.place for each in row for _ in parts[each.letter]) for row in rows)
    count = max(action.micro_batch for action in actions) + 1
    return ImportedSchedule(placement=placement, num_micro_batches=count, orders=orders, places=places)


def _row(row: Sequence[str], rank: int, file: str) -> Iterator[Action]:
    for step, entry in enumerate(row):
        text = entry.strip()
        if found := _OVERLAP.fullmatch(text):
            parts = found[1].split(";")
        elif not text or _COMMUNICATION.fullmatch(text):
            continue
        else:
            parts = [text]
        for part in parts:
            action = _ACTION.fullmatch(part.strip())
            if action is None:
                raise InvalidArgumentError(
                    f"{file}: rank {rank}, step {step}: '{part}' is no action.", hint="Write 2F0, 2I0, 2W0 or 2B0."
                )
            yield Action(int(action[1]), action[2], int(action[3]), rank, step)


def _check_counts(actions: Sequence[Action], file: str) -> None:
    """Every stage is on one rank, and does all of its work once."""
    ranks: dict[int, Action] = {}
    seen: dict[tuple[int, str, int], Action] = {}
    for action in actions:
        first = ranks.setdefault(action.stage, action)
        if first.rank != action.rank:
            raise InvalidArgumentError(
                f"{file}: {action.place}: stage {action.stage} is on rank {first.rank} too.",
                hint="A stage is on one rank.",
            )
        for letter in "IW" if action.letter == "B" else action.letter:
            before = seen.setdefault((action.stage, letter, action.micro_batch), action)
            if before is not action:
                raise InvalidArgumentError(f"{file}: {action.place} repeats {before.place}.")
    stages, count = range(max(ranks) + 1), max(action.micro_batch for action in actions) + 1
    letters = "FIW" if any(action.letter in "IWB" for action in actions) else "F"
    for stage in stages:
        for n in range(count):
            for letter in letters:
                if (stage, letter, n) not in seen:
                    raise InvalidArgumentError(f"{file} lacks {stage}{letter}{n}, or has fewer stages than it says.")


def _placement(
    actions: Sequence[Action],
    num_ranks: int,
    splits: bool,  # noqa: FBT001 - private
    times: Mapping[str, Sequence[float]],
    memory: float | None,
    file: str,
) -> tuple[TaskPlacement, dict[tuple[str, int], int]]:
    """The chain of stages, and its tasks by letter and stage."""
    rank_of = {action.stage: action.rank for action in actions}
    stages = sorted(rank_of)
    chunks = max(list(rank_of.values()).count(rank) for rank in set(rank_of.values()))
    letters = "F" if all(action.letter == "F" for action in actions) else "FIW" if splits else "FB"
    is_training = len(letters) > 1
    kept = 1 / chunks if is_training else 0.0
    frees = {"F": kept, "I": 0.0, "W": 0.0 - kept, "B": 0.0 - kept}
    tasks, numbers = list[Task](), dict[tuple[str, int], int]()
    for letter in letters:
        for stage in stages:
            numbers[letter, stage] = len(tasks)
            tasks.append(
                Task(
                    name=f"{letter}{stage}",
                    devices=(rank_of[stage],),
                    time=_time(times, letter, stage, len(stages), file),
                    memory=frees[letter],
                    kind=_KINDS[letter],
                )
            )
    pairs = [(numbers["F", a], numbers["F", b]) for a, b in pairwise(stages)]
    if is_training:
        back = letters[1]
        pairs += [(numbers[back, b], numbers[back, a]) for a, b in pairwise(stages)]
        pairs.append((numbers["F", stages[-1]], numbers[back, stages[-1]]))
    if splits:
        pairs += [(numbers["I", stage], numbers["W", stage]) for stage in stages]
    dependencies = tuple(Dependency(before=before, after=after) for before, after in pairs)
    placement = TaskPlacement(
        name=file, num_devices=num_ranks, tasks=tuple(tasks), dependencies=dependencies, memory=memory
    )
    return placement, numbers


def _time(times: Mapping[str, Sequence[float]], letter: str, stage: int, num_stages: int, file: str) -> float:
    given = times.get(letter)
    if given is None and letter in "IW" and "B" in times:
        return _time(times, "B", stage, num_stages, file) / 2
    if given is None and letter == "B" and "I" in times and "W" in times:
        return sum(_time(times, part, stage, num_stages, file) for part in "IW")
    if given is None or len(given) not in (1, num_stages):
        raise InvalidArgumentError(
            f"{file}: there are {0 if given is None else len(given)} times for {letter} of {num_stages} stages.",
            hint="Write --times F=1,I=1,W=1 or --times F=1:2:1:2,B=2:4:2:4.",
            field="times",
        )
    return given[stage] if len(given) > 1 else given[0]
