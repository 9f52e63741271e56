"""Runs one rank's list of actions.

Every action is bound once to what it touches, so that a step is a walk along a list of calls. Slots are numbered; a
slot that is on its way is waited for by what reads it first.
"""

from collections import deque
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from itertools import product

import torch

from headway.core.execution.execution import RUNS, Action, ActionKind, Execution, Slot, ValueSpec
from headway.core.execution.parts import StepParts
from headway.core.execution.regions import copies, lengths
from headway.core.execution.settled import settled_sends
from headway.core.execution.strides import dense_stride
from headway.train.batch import Batch
from headway.train.gradients import Gradients
from headway.train.links import Links, Pending
from headway.train.parts import PartRunner

Box = tuple[tuple[int, int, int], ...]
"""Of each dim from where on in one tensor, to where in another, and how many elements."""
_SEEDS = 0x9E3779B97F4A7C15
_MOST_SEED = (1 << 63) - 1
_NO_BATCH = Batch(step=0, tensors={}, shares={})


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
        self._settles: dict[int, tuple[int, int]] = {}
        self._strides: dict[int, tuple[int, ...]] = {}
        self._sends: dict[int, deque[Pending]] = {}
        self._num_over: dict[int, int] = {}
        self._batch = _NO_BATCH
        self._device = links.device
        self._loss = torch.zeros((), dtype=torch.float64, device=self._device)
        tags: dict[tuple[bool, int], int] = {}
        settled = settled_sends(execution, rank)
        actions = enumerate(execution.ranks[rank].actions)
        self._calls = [self._bound(action, tags, settled.get(at, 0)) for at, action in actions]

    def step(self, batch: Batch) -> torch.Tensor:
        """Runs all actions but the update, and returns this rank's part of the loss; gradients are added up then."""
        self._batch = batch
        self._loss.zero_()
        self._gradients.clear()
        for call in self._calls:
            call()
        for peer, sends in self._sends.items():
            self._settle(peer, self._num_over[peer] + len(sends))
            self._num_over[peer] = 0
        self._batch = _NO_BATCH
        return self._loss

    def _bound(self, action: Action, tags: dict[tuple[bool, int], int], num_settled: int) -> Callable[[], None]:
        if action.kind in RUNS:
            return self._bound_run(action)
        if action.kind in (ActionKind.SEND, ActionKind.RECV):
            key = action.kind is ActionKind.SEND, action.peer
            tags[key] = tags.get(key, -1) + 1
            return self._bound_transfer(action, tags[key], num_settled)
        match action.kind:
            case ActionKind.JOIN | ActionKind.GATHER:
                return (self._bound_join if action.kind is ActionKind.JOIN else self._bound_gather)(action)
            case ActionKind.FREE:
                return partial(self._free, [self._number(slot) for slot in action.slots])
            case ActionKind.REDUCE:
                return partial(self._gradients.add_up, action.ranks, self._links)
            case _:
                return self._gradients.wait

    def _bound_transfer(self, action: Action, tag: int, num_settled: int) -> Callable[[], None]:
        """Args:
        tag: its number among the transfers between these two ranks in this direction.
        num_settled: of a RECV, how many sends to that rank are over with it.
        """
        numbers = [self._number(slot) for slot in action.slots]
        if action.kind is ActionKind.SEND:
            self._sends.setdefault(action.peer, deque())
            self._num_over[action.peer] = 0
            piece, source = action.slots
            boxes = self._boxes(source, piece)
            return partial(self._send, numbers[1], boxes, action.shape, action.peer, tag)
        self._note_stride(numbers[0], action.slots[0])
        self._settles[numbers[0]] = action.peer, num_settled
        return partial(self._receive, numbers[0], action.shape, _dtype(action.dtype), action.peer, tag)

    def _bound_join(self, action: Action) -> Callable[[], None]:
        made, *sources = action.slots
        spec = self._values[made.value]
        region = spec.region(made)
        pieces = [(self._number(source), self._boxes(source, made)) for source in sources]
        at = self._number(made)
        self._note_stride(at, made)
        return partial(self._join, at, lengths(region), pieces, spec)

    def _bound_gather(self, action: Action) -> Callable[[], None]:
        made, *parts = action.slots
        spec = self._values[made.value]
        pairs = zip(lengths(spec.region(made)), lengths(spec.region(parts[0])), strict=True)
        dim = next(dim for dim, (whole, part) in enumerate(pairs) if whole != part)
        sizes = [lengths(spec.region(part))[dim] for part in parts]
        own, at = self._number(parts[action.ranks.index(self._rank)]), self._number(made)
        self._note_stride(at, made)
        return partial(self._gather, at, own, dim, sizes, action.ranks, spec.name)

    def _bound_run(self, action: Action) -> Callable[[], None]:
        part = self._execution.parts[action.part]
        stage = self._execution.stages[part.stage]
        cut = self._cuts[part.stage].parts[action.part]
        names = self._cuts[part.stage].names
        given: list[torch.Tensor | None] = [None] * len(cut.cut.reads)
        sources: list[tuple[int, Callable[[], torch.Tensor]]] = []
        reads: list[tuple[int, int, str, bool]] = []
        for place, number in enumerate(cut.cut.reads):
            if number in self._execution.seeds:
                sources.append((place, partial(self._share, self._execution.seeds.index(number), action.first)))
            elif number < len(names) and names[number] in self._state:
                given[place] = self._state[names[number]]
            elif number < len(names):
                sources.append((place, partial(self._fed, names[number], action.first, action.count)))
            else:
                slot = stage.slot(self._values[number], self._rank, action.first, action.count)
                what = f"{self._values[number].name}, {slot}"
                reads.append((place, self._number(slot), what, number in part.gives_up))
        made = [stage.slot(self._values[v], self._rank, action.first, action.count) for v in part.writes]
        writes = [self._number(slot) for slot in made]
        losses = [
            (part.writes.index(loss), (place, action.first))
            for place, loss in enumerate(self._execution.losses)
            if loss in part.writes and stage.member(self._rank) == 0
        ]
        seed = self._seed * _SEEDS + action.first + self._execution.batch * (part.stage % self._execution.num_slices)
        return partial(
            self._run,
            action.part,
            given,
            sources,
            reads,
            writes,
            losses,
            seed if cut.is_random else None,
        )

    def _run(
        self,
        part: int,
        given: Sequence[torch.Tensor | None],
        sources: Sequence[tuple[int, Callable[[], torch.Tensor]]],
        reads: Sequence[tuple[int, int, str, bool]],
        writes: Sequence[int],
        losses: Sequence[tuple[int, tuple[int, int]]],
        seed: int | None,
    ) -> None:
        """Args:
        given: what it reads; None where that is another in each run.
        sources, reads: for these places of `given`, what gives it; or the number of its slot, what to call it, and
            whether the part is the last to have it.
        losses: places of losses among the results, each with the key of its share.
        seed: of what it draws, but for the step; None where it draws nothing.
        """
        values = list(given)
        for place, at, what, is_last in reads:
            if at in self._coming:
                self._arrive(at, what)
            values[place] = self._slots[at]
            if is_last:
                self._slots[at] = None
        for place, source in sources:
            values[place] = source()
        if seed is not None:
            torch.manual_seed((seed + self._batch.step * 1_000_003) & _MOST_SEED)
        results = self._runner.run(part, values)  # type: ignore[arg-type]  # the certifier saw that all are there
        for at, value in zip(writes, results, strict=True):
            self._slots[at] = value
        for at, key in losses:
            self._loss.add_(results[at], alpha=self._batch.shares[key])

    def _send(self, source: int, boxes: Sequence[Box], shape: tuple[int, ...], peer: int, tag: int) -> None:
        if source in self._coming:
            self._arrive(source, "what it hands on")
        tensor = self._there(source)
        if len(boxes) == 1:
            piece = _narrowed(tensor, [(first, length) for first, _, length in boxes[0]]).contiguous()
        else:
            piece = tensor.new_empty(shape)
            _copy(tensor, piece, boxes)
        self._sends[peer].append(self._links.send(piece, peer, tag))

    def _receive(self, at: int, shape: tuple[int, ...], dtype: torch.dtype, peer: int, tag: int) -> None:
        room = torch.empty(shape, dtype=dtype, device=self._device)
        self._slots[at] = room
        self._coming[at] = self._links.receive(room, peer, tag)

    def _join(
        self,
        at: int,
        shape: tuple[int, ...],
        pieces: Sequence[tuple[int, Sequence[Box]]],
        spec: ValueSpec,
    ) -> None:
        """Args:
        pieces: of each source its number, and what of it goes where.
        """
        for source, _ in pieces:
            if source in self._coming:
                self._arrive(source, f"a part of {spec.name}")
        made = torch.empty(shape, dtype=_dtype(spec.dtype), device=self._device)
        for source, boxes in pieces:
            _copy(self._there(source), made, boxes)
        self._slots[at] = self._laid_out(at, made)

    def _gather(self, at: int, own: int, dim: int, sizes: Sequence[int], ranks: tuple[int, ...], what: str) -> None:
        """Args:
        sizes: of the ranks' parts along the dim; shorter ones travel with zeros behind them.
        """
        if own in self._coming:
            self._arrive(own, f"a part of {what}")
        tensor = self._there(own)
        if tensor.shape[dim] < max(sizes):
            room = list(tensor.shape)
            room[dim] = max(sizes)
            padded = tensor.new_zeros(room)
            padded.narrow(dim, 0, tensor.shape[dim]).copy_(tensor)
            tensor = padded
        given = self._links.gather_row(tensor.contiguous(), ranks)
        parts = [part.narrow(dim, 0, size) for part, size in zip(given, sizes, strict=True)]
        self._slots[at] = self._laid_out(at, torch.cat(parts, dim))

    def _free(self, numbers: Sequence[int]) -> None:
        for at in numbers:
            if at in self._coming:
                self._arrive(at, "what nothing reads")
            self._slots[at] = None

    def _arrive(self, at: int, what: str) -> None:
        self._coming.pop(at).wait(what)
        self._slots[at] = self._laid_out(at, self._there(at))
        self._settle(*self._settles[at])

    def _settle(self, peer: int, count: int) -> None:
        """Drops what it has sent a rank, but for all behind the first so many."""
        sends = self._sends.get(peer)
        while sends and self._num_over[peer] < count:
            sends.popleft().wait("what it was sent to be received")
            self._num_over[peer] += 1

    def _laid_out(self, at: int, tensor: torch.Tensor) -> torch.Tensor:
        """The same numbers in the order of memory in which the maker had them, which views rest on."""
        stride = self._strides.get(at)
        if stride is None:
            return tensor
        return torch.empty_strided(tensor.shape, stride, dtype=tensor.dtype, device=tensor.device).copy_(tensor)

    def _there(self, at: int) -> torch.Tensor:
        tensor = self._slots[at]
        assert tensor is not None, "the certifier saw that it is there"
        return tensor

    def _share(self, place: int, first: int) -> torch.Tensor:
        loss = self._values[self._execution.losses[place]]
        return torch.full((), self._batch.shares[place, first], dtype=_dtype(loss.dtype), device=self._device)

    def _fed(self, name: str, first: int, count: int) -> torch.Tensor:
        return self._batch.tensors[name].narrow(0, first, count)

    def _number(self, slot: Slot) -> int:
        if slot not in self._numbers:
            self._numbers[slot] = len(self._slots)
            self._slots.append(None)
        return self._numbers[slot]

    def _note_stride(self, at: int, slot: Slot) -> None:
        spec = self._values[slot.value]
        shape = lengths(spec.region(slot))
        stride = dense_stride(shape, spec.stride)
        if stride != dense_stride(shape, tuple(range(len(shape), 0, -1))):
            self._strides[at] = stride

    def _boxes(self, source: Slot, target: Slot) -> list[Box]:
        """What of a slot's tensor goes where in another's."""
        spec = self._values[source.value]
        return list(product(*copies(spec.region(source), spec.region(target))))


def _copy(source: torch.Tensor, target: torch.Tensor, boxes: Sequence[Box]) -> None:
    for each in boxes:
        wanted = _narrowed(source, [(first, length) for first, _, length in each])
        _narrowed(target, [(to, length) for _, to, length in each]).copy_(wanted)


def _narrowed(tensor: torch.Tensor, places: Sequence[tuple[int, int]]) -> torch.Tensor:
    """A part of a tensor, as a view: of each dim from where on, and how many elements."""
    for dim, (first, length) in enumerate(places):
        if length != tensor.shape[dim]:
            tensor = tensor.narrow(dim, first, length)
    return tensor


def _dtype(name: str) -> torch.dtype:
    found: torch.dtype = getattr(torch, name)
    return found
