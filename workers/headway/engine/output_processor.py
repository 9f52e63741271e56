"""Turns what a step has computed and sampled into outputs."""

from headway.core.request import FinishReason, SequenceOutput
from headway.engine.batch import Sample, ScheduledSequence, StepBatch, StepResult
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.group import SequenceGroup
from headway.engine.limits import finish_reason
from headway.engine.output import beam_output, end_output, token_output
from headway.engine.request_queues import RequestQueues
from headway.engine.sequence import Sequence, SequenceStatus


class OutputProcessor:
    """Turns the results of batches into outputs, forks and ends.

    Attributes:
        num_draft_tokens, num_accepted_tokens: guessed ahead, and found right, since the start.
        begun, ended: the groups of sequences that got their first token, and their last; the reader clears them.
    """

    def __init__(self, config: EngineConfig, *, queues: RequestQueues, blocks: BlockManager) -> None:
        self._config = config
        self._eos_token_ids = frozenset(config.eos_token_ids)
        self._queues = queues
        self._blocks = blocks
        self._max_sequence_len = 0
        self.begun: list[SequenceGroup] = []
        self.ended: list[SequenceGroup] = []
        self.num_draft_tokens = 0
        self.num_accepted_tokens = 0

    def process(self, batch: StepBatch, result: StepResult) -> list[SequenceOutput]:
        """Returns the outputs of the batch, those of ended sequences among them."""
        outputs = self._queues.take_ended()
        self._max_sequence_len = self._config.max_sequence_len_within(self._blocks.num_unpinned_blocks)
        finished = SequenceStatus.FINISHED
        for scheduled, samples, prompt_logprobs in zip(
            batch.sequences, result.samples, result.prompt_logprobs, strict=True
        ):
            sequence = scheduled.sequence
            if sequence.status is finished:
                continue  # it was cancelled on the way
            if prompt_logprobs:
                sequence.keep_prompt_logprobs(prompt_logprobs, start=scheduled.start)
            num_drafts = len(scheduled.draft_token_ids)
            sequence.num_computed_tokens += scheduled.num_new_tokens - num_drafts
            if scheduled.samples and not scheduled.followers and sequence.sampling.beam is None:
                outputs.append(self._append(sequence, samples[0]))
                if num_drafts:
                    self.num_draft_tokens += num_drafts
                    self.num_accepted_tokens += max(len(samples[0].token_ids) - 1, 0)
            else:
                outputs += self._advance_group(scheduled, samples)
        return outputs

    def _advance_group(self, scheduled: ScheduledSequence, samples: tuple[Sample, ...]) -> list[SequenceOutput]:
        """Processes a scheduled sequence that concerns the whole group, or a prefill chunk."""
        sequence = scheduled.sequence
        group = self._group_of(sequence)
        if group.num_in_flight:
            return []  # further chunks of the prompt are on their way; the last one brings what concerns all
        self._blocks.publish(sequence)
        if sequence.num_computed_tokens == group.num_common_tokens:
            group.fork(self._blocks)
        if not scheduled.samples:
            return []
        if group.beams is not None:
            if samples[0].error:
                return [self._append(sequence, samples[0])]
            return self._advance_beams(group, sequence, samples[0])
        members = zip((sequence, *scheduled.followers), samples, strict=True)
        return [
            self._append(member, sample) for member, sample in members if member.status is not SequenceStatus.FINISHED
        ]

    def _append(self, sequence: Sequence, sample: Sample) -> SequenceOutput:
        """Appends sampled tokens up to the one that ends the sequence; of several, all but the last are computed."""
        if sample.error:
            self._queues.end(sequence.request_id)
            return end_output(sequence, reason=FinishReason.ERROR, error=sample.error)
        if len(sequence.token_ids) == sequence.num_given_tokens:
            self.begun.append(self._group_of(sequence))
        num_new_tokens, reason = 0, None
        eos_token_ids, max_sequence_len = self._eos_token_ids, self._max_sequence_len
        for token_id in sample.token_ids:
            sequence.token_ids.append(token_id)
            num_new_tokens += 1
            reason = finish_reason(sequence, eos_token_ids=eos_token_ids, max_sequence_len=max_sequence_len)
            if reason is not None:
                break
        assert num_new_tokens, f"nothing was sampled for {sequence.request_id}"
        sequence.num_computed_tokens += num_new_tokens - 1
        self._blocks.publish(sequence)
        if reason is not None:
            self.ended.append(self._group_of(sequence))
            self._queues.end(sequence.request_id)
        return token_output(sequence, sample=sample, num_new_tokens=num_new_tokens, reason=reason)

    def _advance_beams(self, group: SequenceGroup, beam: Sequence, sample: Sample) -> list[SequenceOutput]:
        """Takes a beam search one token further, once all of its live beams have been computed."""
        assert group.beams is not None, "not a beam search"
        if not group.beams.offer(group.sequences.index(beam), sample.candidates):
            return []
        if group.first_token_s is None:
            self.begun.append(group)
        survivors = group.beams.advance([sequence.output_token_ids for sequence in group.sequences])
        if not group.beams.is_done:
            group.replace(survivors, self._blocks)
            return []
        self.ended.append(group)
        self._queues.end(beam.request_id)
        return [beam_output(beam, beams=group.beams)]

    def _group_of(self, sequence: Sequence) -> SequenceGroup:
        group = self._queues.find(sequence.request_id)
        assert group is not None, f"{sequence.request_id} was computed after its end"
        return group
