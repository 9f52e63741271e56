"""Blocks that come from other engines or go there, by name: how running sequences move, and prefixes travel.

Content is named by its tokens, so what another engine of the same model has computed is as good as our own: blocks
that arrive join the prefix cache, and a sequence that is submitted with the tokens that they hold finds them there.
"""

from collections.abc import Callable, Iterable
from collections.abc import Sequence as Group
from dataclasses import dataclass

from headway.core.errors import FailedPreconditionError, NotFoundError, ResourceExhaustedError
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.group import SequenceGroup
from headway.engine.request_queues import RequestQueues
from headway.engine.sequence import SequenceStatus


@dataclass(frozen=True, slots=True)
class NamedBlock:
    """A full block of tokens; `parent_name` is empty for the first of a sequence."""

    name: bytes
    parent_name: bytes


@dataclass(frozen=True, slots=True)
class SequenceProgress:
    """The progress of sequences that were submitted together.

    Attributes:
        chains: for each sequence, the names (hashes) of its computed blocks, first to last.
        has_begun: whether any of them runs.
        is_decoding: whether the prompt is computed and each sequence decodes by itself.
    """

    chains: list[list[bytes]]
    has_begun: bool
    is_decoding: bool


@dataclass(frozen=True, slots=True)
class BlockPlace:
    """The place of a named block's content: a block of the device's pool, or of the host tier."""

    name: bytes
    block: int
    is_on_host: bool


class KvTransfer:
    """Reads and writes KV blocks between two steps. Blocks are not held: read or write them before the next step.

    Behind a step that failed before its copies there is nothing to read, and no room, until a step has made up for
    them: blocks have not yet what they are said to have, and others that count as free are still to be copied from.

    Args:
        owes_copies: whether that is so now.
    """

    def __init__(
        self, config: EngineConfig, *, queues: RequestQueues, blocks: BlockManager, owes_copies: Callable[[], bool]
    ) -> None:
        self._config = config
        self._queues = queues
        self._blocks = blocks
        self._owes_copies = owes_copies

    def groups(self) -> list[tuple[str, ...]]:
        """Request ids of all groups that can move, the oldest first: a beam search ends where it is."""
        return [
            tuple(sequence.request_id for sequence in group.sequences)
            for group in self._queues.groups
            if group.beams is None
        ]

    def chains(self, request_ids: Iterable[str]) -> list[list[bytes]]:
        """Names of the blocks that are there of each sequence, from its first; those that have ended are left out.

        Raises:
            NotFoundError: all of them have ended.
            FailedPreconditionError: one is a beam search.
        """
        chains = []
        for request_id in request_ids:
            group = self._queues.find(request_id)
            if group is None:
                continue
            if group.beams is not None:
                raise FailedPreconditionError("A beam search ends where it began.", hint="Wait for its end.")
            sequence = next(member for member in group.sequences if member.request_id == request_id)
            chains.append(self._blocks.find_prefix(sequence))
        if not chains:
            raise NotFoundError("The request has ended.", field="request_id")
        return chains

    def progress(self, request_ids: Group[str]) -> SequenceProgress | None:
        """Returns the progress of these sequences, or None where they have ended or are not known yet. Raises
        FailedPreconditionError as `chains` does.
        """
        groups = [group for request_id in request_ids if (group := self._queues.find(request_id)) is not None]
        if not groups:
            return None
        has_begun = any(group.status is SequenceStatus.RUNNING for group in groups)
        is_decoding = all(map(_is_decoding, groups))
        return SequenceProgress(self.chains(request_ids) if has_begun else [], has_begun, is_decoding)

    def locate(self, names: Iterable[bytes]) -> list[BlockPlace]:
        """Returns the places of the named blocks; names whose content is not here are left out."""
        if self._owes_copies():
            return []
        return [place for name in names if (place := self._find(name)) is not None]

    def missing(self, chains: Group[Group[bytes]], *, num_sequences: int) -> list[NamedBlock]:
        """The blocks that are not here, each once, parents first; those that are will be evicted last.

        Args:
            num_sequences: that are to start at once, with these blocks.

        Raises:
            FailedPreconditionError: there is no prefix cache.
            ResourceExhaustedError: there is no room for the blocks, or the sequences would have to wait.
        """
        if not self._config.enable_prefix_cache:
            raise FailedPreconditionError("Blocks are not kept here.", hint="Serve the model with its prefix cache.")
        wanted = {
            name: NamedBlock(name, parent_name)
            for chain in chains
            for parent_name, name in zip((b"", *chain), chain, strict=False)
        }
        missing = [block for name, block in wanted.items() if not self._blocks.touch(name)]
        num_taken = self._queues.num_places_taken + sum(group.num_places for group in self._queues.waiting)
        if num_sequences and num_taken + num_sequences > self._config.max_num_seqs:
            raise ResourceExhaustedError(f"{num_taken} of {self._config.max_num_seqs} sequences run here already.")
        num_blocks = len(wanted) + num_sequences
        if not self._blocks.fits(
            prefix=list(wanted),
            num_tokens=num_blocks * self._config.block_size,
            num_reserved=self._config.num_watermark_blocks,
        ):
            num_available = self._blocks.num_available_blocks
            raise ResourceExhaustedError(f"There is no room for {num_blocks} KV blocks: {num_available} are available.")
        return missing

    def admit(self, block: NamedBlock) -> int | None:
        """The device block into which to write content, which is cached from now on; None where it is here by now, or
        there is no room."""
        if self._owes_copies() or self._find(block.name) is not None or not self._blocks.num_available_blocks:
            return None
        return self._blocks.admit(block.name, parent_name=block.parent_name)

    def _find(self, name: bytes) -> BlockPlace | None:
        found = self._blocks.locate(name)
        return None if found is None else BlockPlace(name, *found)


def _is_decoding(group: SequenceGroup) -> bool:
    is_computing_prompt = group.followers or group.num_pending_prefill_tokens or group.has_prompt_in_flight
    return group.status is SequenceStatus.RUNNING and not is_computing_prompt
