"""Runs one rank's list of actions.

Every action is bound once to what it touches, so that a step is a walk along a list of calls. Slots are numbered; a
slot that is on its way is waited for by what reads it first.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import partial

import torch

from headway.core.execution.execution import RUNS, Action, ActionKind, Execution, Slot, ValueSpec
from headway.core.execution.parts import StepParts
from headway.core.execution.strides import dense_stride
from headway.train.batch import Batch
from headway.train.gradients import Gradients
from headway.train.links import Links, Pending
from headway.train.parts import PartRunner

_SEEDS = 0x9E3779B97F4A7C15
_MOST_SEED = (1 << 63) - 1


class Executor:
    """Args:
    cuts: of each stage of this rank, the parts of the step with as many examples as its runs have.
    state: parameters and buffers by name; parameters are changed by nobody here.
    """

    def __init__(
        self,
        execution: Execution,
        rank: int,
        cuts: Mapping[int, StepParts],
        *,
        runner: PartRunner,
        links: Links,
        state: Mapping[str, torch.Tensor],
        gradients: Gradients,
        seed: int,
    ) -> None:
        self._execution, self._rank, self._cuts = execution, rank, cuts
        self._runner, self._links, self._state, self._gradients = runner, links, state, gradients
        self._seed = seed
        self._values = execution.values_by_number()
        self._numbers: dict[Slot, int] = {}
        self._slots: list[torch.Tensor | None] = []
        self._coming: dict[int, Pending] = {}
        self._strides: dict[int, tuple[int, ...]] = {}
        self._sends: list[Pending] = []
        self._batch: Batch = Batch(step=0, tensors={}, shares={})
        self._loss = torch.zeros((), dtype=torch.float64)
        tags: dict[tuple[bool, int], int] = {}
        self._calls = [self._bound(action, tags) for action in execution.ranks[rank].actions]

    def step(self, batch: Batch) -> torch.Tensor:
        """Runs all actions but the update, and returns this rank's part of the loss; gradients are added up then."""
        self._batch = batch
        self._loss.zero_()
        self._gradients.clear()
        for call in self._calls:
            call()
        for pending in self._sends:
            pending.wait("what it was sent to be received")
        self._sends.clear()
        return self._loss

    def _bound(self, action: Action, tags: dict[tuple[bool, int], int]) -> Callable[[], None]:
        if action.kind in RUNS:
            return self._bound_run(action)
        if action.kind in (ActionKind.SEND, ActionKind.RECV):
            key = action.kind is ActionKind.SEND, action.peer
            tags[key] = tags.get(key, -1) + 1
            return self._bound_transfer(action, tags[key])
        numbers = [self._number(slot) for slot in action.slots]
        match action.kind:
            case ActionKind.JOIN:
                spec = self._values[action.slots[0].value]
                parts = [self._narrowed(_overlap(action.slots[0], slot), slot) for slot in action.slots[1:]]
                self._note_stride(numbers[0], action.slots[0])
                return partial(self._join, numbers[0], numbers[1:], parts, spec)
            case ActionKind.FREE:
                return partial(self._free, numbers)
            case ActionKind.REDUCE:
                return partial(self._gradients.add_up, action.ranks, self._links)
            case _:
                return self._gradients.wait

    def _bound_transfer(self, action: Action, tag: int) -> Callable[[], None]:
        """Args:
        tag: its number among the transfers between these two ranks in this direction.
        """
        numbers = [self._number(slot) for slot in action.slots]
        if action.kind is ActionKind.SEND:
            return partial(self._send, numbers[1], self._narrowed(*action.slots), action.peer, tag)
        self._note_stride(numbers[0], action.slots[0])
        return partial(self._receive, numbers[0], action.shape, _dtype(action.dtype), action.peer, tag)

    def _bound_run(self, action: Action) -> Callable[[], None]:
        part = self._execution.parts[action.part]
        cut = self._cuts[part.stage].parts[action.part]
        names = self._cuts[part.stage].names
        sources: list[Callable[[], torch.Tensor]] = []
        waits: list[tuple[int, str]] = []
        for number in cut.cut.reads:
            if number in self._execution.seeds:
                place = self._execution.seeds.index(number)
                sources.append(partial(self._share, place, action.first))
            elif number < len(names) and names[number] in self._state:
                sources.append(partial(self._state.__getitem__, names[number]))
            elif number < len(names):
                sources.append(partial(self._fed, names[number], action.first, action.count))
            else:
                slot = Slot(value=number, first=action.first, count=action.count)
                at = self._number(slot)
                sources.append(partial(self._slots.__getitem__, at))  # type: ignore[arg-type]
                waits.append((at, f"{self._values[number].name}, {slot}"))
        writes = [self._number(Slot(value=v, first=action.first, count=action.count)) for v in part.writes]
        losses = [
            (part.writes.index(loss), (place, action.first))
            for place, loss in enumerate(self._execution.losses)
            if loss in part.writes and self._execution.stages[part.stage].member(self._rank) == 0
        ]
        seed = self._seed * _SEEDS + action.first + self._execution.batch * (part.stage % self._execution.num_slices)
        return partial(
            self._run, action.part, sources, waits, writes, part.gradients, losses, seed if cut.is_random else None
        )

    def _run(
        self,
        part: int,
        sources: Sequence[Callable[[], torch.Tensor]],
        waits: Sequence[tuple[int, str]],
        writes: Sequence[int],
        gradients: Sequence[str],
        losses: Sequence[tuple[int, tuple[int, int]]],
        seed: int | None,
    ) -> None:
        """Args:
        losses: places of losses among the results, each with the key of its share.
        seed: of what it draws, but for the step; None where it draws nothing.
        """
        for at, what in waits:
            if at in self._coming:
                self._arrive(at, what)
        if seed is not None:
            torch.manual_seed((seed + self._batch.step * 1_000_003) & _MOST_SEED)
        results = self._runner.run(part, [source() for source in sources])
        for at, value in zip(writes, results, strict=False):
            self._slots[at] = value
        for at, key in losses:
            self._loss.add_(results[at], alpha=self._batch.shares[key])
        if gradients:
            self._gradients.add(gradients, results[len(writes) :])

    def _send(self, source: int, narrow: "Callable[[torch.Tensor], torch.Tensor]", peer: int, tag: int) -> None:
        if source in self._coming:
            self._arrive(source, "what it hands on")
        self._sends.append(self._links.send(narrow(self._there(source)).contiguous(), peer, tag))

    def _receive(self, at: int, shape: tuple[int, ...], dtype: torch.dtype, peer: int, tag: int) -> None:
        room = torch.empty(shape, dtype=dtype)
        self._slots[at] = room
        self._coming[at] = self._links.receive(room, peer, tag)

    def _join(
        self, at: int, sources: Sequence[int], parts: Sequence[Callable[[torch.Tensor], torch.Tensor]], spec: ValueSpec
    ) -> None:
        for source in sources:
            if source in self._coming:
                self._arrive(source, f"a part of {spec.name}")
        pieces = [part(self._there(source)) for source, part in zip(sources, parts, strict=True)]
        self._slots[at] = self._laid_out(at, pieces[0] if spec.dim is None else torch.cat(pieces, dim=spec.dim))

    def _free(self, numbers: Sequence[int]) -> None:
        for at in numbers:
            if at in self._coming:
                self._arrive(at, "what nothing reads")
            self._slots[at] = None

    def _arrive(self, at: int, what: str) -> None:
        self._coming.pop(at).wait(what)
        self._slots[at] = self._laid_out(at, self._there(at))

    def _laid_out(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers in the order of memory in which the maker had them, which views rest on."""
        stride = self._strides.get(at)
        if stride is None:
            return tensor
        return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype).copy_(tensor)

    def _there(self, at: int) -> torch.Tensor:
        tensor = self._slots[at]
        assert tensor is not None, "the certifier saw that it is there"
        return tensor

    def _share(self, place: int, first: int) -> torch.Tensor:
        loss = self._values[self._execution.losses[place]]
        return torch.tensor(self._batch.shares[place, first], dtype=_dtype(loss.dtype))

    def _fed(self, name: str, first: int, count: int) -> torch.Tensor:
        return self._batch.tensors[name][first : first + count]

    def _number(self, slot: Slot) -> int:
        if slot not in self._numbers:
            self._numbers[slot] = len(self._slots)
            self._slots.append(None)
        return self._numbers[slot]

    def _note_stride(self, at: int, slot: Slot) -> None:
        spec = self._values[slot.value]
        shape = spec.shape_of(slot.count)
        stride = dense_stride(shape, spec.stride)
        if stride != dense_stride(shape, tuple(range(len(shape), 0, -1))):
            self._strides[at] = stride

    def _narrowed(self, piece: Slot, source: Slot) -> Callable[[torch.Tensor], torch.Tensor]:
        spec = self._values[piece.value]
        if piece == source or spec.dim is None:
            return lambda tensor: tensor
        per_example = spec.shape[spec.dim] // spec.examples
        start, length = (piece.first - source.first) * per_example, piece.count * per_example
        return partial(torch.narrow, dim=spec.dim, start=start, length=length)


def _overlap(target: Slot, source: Slot) -> Slot:
    first, end = max(target.first, source.first), min(target.end, source.end)
    return Slot(value=target.value, first=first, count=end - first)


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found
