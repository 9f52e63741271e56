"""Finds the request that makes steps fail: the suspects are computed in ever smaller batches until one fails alone. To
rule out chance, a group that was alone in a failed batch is tried once more.
"""

from collections.abc import Sequence as Groups

from headway.engine.group import SequenceGroup
from headway.engine.sequence import SequenceStatus


class Bisection:
    """Halves the groups of a batch that failed. Of n groups one is found with at most 2 log2(n) batches.

    Whoever was in a batch that did not fail is no suspect any more. A group that gives way meanwhile is none either: if
    its turn comes again and a batch fails with it, there is another search.
    """

    def __init__(self) -> None:
        self._trials: list[Groups[SequenceGroup]] = []  # the next one last

    @property
    def is_active(self) -> bool:
        """Whether there are suspects, who are to be computed by themselves."""
        while self._trials and not any(_can_run(group) for group in self._trials[-1]):
            self._trials.pop()  # they have ended, or wait
        return bool(self._trials)

    def is_suspect(self, group: SequenceGroup) -> bool:
        return any(group in trial for trial in self._trials)

    @property
    def suspects(self) -> Groups[SequenceGroup]:
        """The groups that the next batch is made of. Use it only while the search is active."""
        return self._trials[-1]

    def note_success(self) -> None:
        """Clears the suspects: their batch did not fail."""
        self._trials.pop()

    def note_failure(self, groups: Groups[SequenceGroup], *, is_trial: bool) -> SequenceGroup | None:
        """Records that a batch with these groups failed. Returns the group to blame once it was tried alone and failed.

        Args:
            is_trial: whether the batch was made of the suspects alone.
        """
        if is_trial:
            self._trials.pop()
        suspects = [group for group in groups if _can_run(group)]
        if is_trial and len(suspects) == 1:
            return suspects[0]
        half = len(suspects) // 2
        self._trials += [suspects[half:], suspects[:half]]
        return None


def _can_run(group: SequenceGroup) -> bool:
    return bool(group.sequences) and group.status is SequenceStatus.RUNNING
