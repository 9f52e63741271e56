"""Takes in new sequences: checks them, and queues them as a group."""

from collections.abc import Sequence as Group
from itertools import count

from headway.core.errors import AlreadyExistsError
from headway.core.fair_share import check_weight
from headway.core.line import Rank, rank_of
from headway.core.request import FinishReason, GenerationRequest
from headway.engine.beam import BeamState
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.group import SequenceGroup
from headway.engine.limits import check_beam_room, check_group, check_tokens, finish_reason, stop_token_ids
from headway.engine.output import end_output
from headway.engine.request_queues import RequestQueues
from headway.engine.sequence import Sequence


class InputProcessor:
    """Refuses what could never be answered."""

    def __init__(self, config: EngineConfig, *, queues: RequestQueues, blocks: BlockManager) -> None:
        self._config = config
        self._eos_token_ids = frozenset(config.eos_token_ids)
        self._queues = queues
        self._blocks = blocks
        self._arrivals = count()

    def accept(self, requests: Group[GenerationRequest], *, arrival_s: float) -> None:
        """Queues the sequences of one prompt; those that were submitted complete only have their end reported.

        Raises:
            AlreadyExistsError: an id is in use.
            InvalidArgumentError: they do not belong together, or one of them could never be answered.
        """
        sequences = [Sequence.from_request(request, arrival_s=arrival_s) for request in requests]
        self._check_ids(sequences)
        check_weight(requests[0].tenant_weight, field="tenant_weight")
        check_group(sequences, max_num_seqs=self._config.max_num_seqs)
        max_sequence_len = self._config.max_sequence_len_within(self._blocks.num_unpinned_blocks)
        for sequence in sequences:
            check_tokens(sequence, max_sequence_len=max_sequence_len, vocab_size=self._config.vocab_size)
        beams = self._beams(sequences[0], max_sequence_len)
        unfinished: list[Sequence] = []
        for sequence in sequences:
            reason = self._finish_reason(sequence, max_sequence_len)
            if reason is None:
                unfinished.append(sequence)
            else:
                self._queues.ended.append(end_output(sequence, reason=reason))
        if unfinished:
            place = (self._rank(requests, arrival_s), next(self._arrivals), 0)
            first = requests[0]
            self._queues.enqueue(
                SequenceGroup(unfinished, place, beams=beams, tenant=first.tenant, tenant_weight=first.tenant_weight)
            )

    def _rank(self, requests: Group[GenerationRequest], arrival_s: float) -> Rank:
        """Returns the group's rank in the waiting queue, set by its most urgent sequence."""
        return rank_of(
            self._config.queue_policy,
            arrived_s=arrival_s,
            latest_start_s=arrival_s + min(request.slack_s for request in requests),
            priority=min(request.priority for request in requests),
        )

    def _check_ids(self, sequences: Group[Sequence]) -> None:
        seen: set[str] = set()
        for sequence in sequences:
            if sequence.request_id in seen or self._queues.find(sequence.request_id) is not None:
                raise AlreadyExistsError(
                    f"Request '{sequence.request_id}' has not ended yet.",
                    hint="Use a new request id for every request.",
                    field="request_id",
                )
            seen.add(sequence.request_id)

    def _beams(self, sequence: Sequence, max_sequence_len: int) -> BeamState | None:
        sampling = sequence.sampling
        if sampling.beam is None:
            return None
        check_beam_room(
            sequence,
            sampling.beam,
            max_sequence_len=max_sequence_len,
            num_blocks=self._blocks.num_unpinned_blocks,
            block_size=self._config.block_size,
        )
        return BeamState(
            sampling.beam,
            stop_token_ids=stop_token_ids(sampling, eos_token_ids=self._eos_token_ids),
            min_tokens=sampling.min_tokens,
            max_tokens=min(sampling.max_tokens, max_sequence_len - sequence.num_prompt_tokens),
        )

    def _finish_reason(self, sequence: Sequence, max_sequence_len: int) -> FinishReason | None:
        return finish_reason(sequence, eos_token_ids=self._eos_token_ids, max_sequence_len=max_sequence_len)
