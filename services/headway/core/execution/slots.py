"""Which slots actions read and make: what all that read lists agree on. Pure."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from headway.core.execution.execution import RUNS, Action, ActionKind, Execution, PartSpec, Slot, StageSpec, ValueSpec


@dataclass(frozen=True, kw_only=True)
class SlotFinder:
    """Attributes:
    values: by number.
    """

    stages: Sequence[StageSpec]
    parts: Sequence[PartSpec]
    values: Mapping[int, ValueSpec]

    @classmethod
    def of(cls, execution: Execution) -> "SlotFinder":
        return cls(stages=execution.stages, parts=execution.parts, values=execution.values_by_number())

    def reads(self, rank: int, action: Action) -> list[Slot]:
        """What has to be there; of a run in the order of its part."""
        if action.kind in RUNS:
            return self.of_run(rank, action, self.parts[action.part].reads)
        if action.kind is ActionKind.GATHER:
            return [action.slots[1 + action.ranks.index(rank)]] if rank in action.ranks else []
        if action.kind in (ActionKind.SEND, ActionKind.JOIN):
            return list(action.slots[1:])
        return list(action.slots) if action.kind is ActionKind.FREE else []

    def makes(self, rank: int, action: Action) -> list[Slot]:
        if action.kind in RUNS:
            return self.of_run(rank, action, self.parts[action.part].writes)
        is_made = action.kind in (ActionKind.RECV, ActionKind.JOIN, ActionKind.GATHER)
        return list(action.slots[:1]) if is_made else []

    def of_run(self, rank: int, action: Action, numbers: Sequence[int]) -> list[Slot]:
        """The slots of values in a run."""
        stage = self.stages[self.parts[action.part].stage]
        return [stage.slot(self.values[number], rank, action.first, action.count) for number in numbers]
