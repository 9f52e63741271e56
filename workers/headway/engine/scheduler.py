"""Which tokens each step computes: iteration-level, first come first served, with chunked prefill.

Sequences run in the order of their arrival, and every running one arrived before every waiting one:

    running: [decode, decode, ..., decode, prefill]    waiting: [preempted, ..., new, new]
              oldest                       <- preempted from here, to here ->     youngest

A prefill takes all of the budget it can use, so nobody is admitted behind an unfinished one, and decodes never wait
for it. The oldest sequence can always take its next step: the others give way to it, and `max_sequence_len` keeps it
within the pool. So every sequence ends.
"""

from collections import OrderedDict
from itertools import pairwise

from headway.core.errors import AlreadyExistsError
from headway.core.request import FinishReason, SequenceOutput, TokenLogprobs
from headway.engine.batch import ScheduledSequence, StepBatch, StepResult
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.events import BlockEventLog
from headway.engine.limits import check_tokens, finish_reason
from headway.engine.output import end_output, token_output
from headway.engine.sequence import Sequence, SequenceStatus


class Scheduler:
    """Turns sequences into batches, and the results of batches into outputs.

    Attributes:
        num_preemptions: since the start.
        num_prefix_queries, num_prefix_hits: tokens looked up in the prefix cache, and found.
        num_prefill_tokens, num_decode_tokens: in the latest batch.
    """

    def __init__(self, config: EngineConfig, *, events: BlockEventLog) -> None:
        self._config = config
        self._eos_token_ids = frozenset(config.eos_token_ids)
        self._max_sequence_len = config.max_sequence_len
        self.blocks = BlockManager(
            config.num_blocks,
            block_size=config.block_size,
            enable_prefix_cache=config.enable_prefix_cache,
            salt=config.cache_salt,
            events=events,
        )
        self._sequences: dict[str, Sequence] = {}
        self._waiting: OrderedDict[str, Sequence] = OrderedDict()
        self._running: list[ScheduledSequence] = []
        self._ended: list[SequenceOutput] = []  # ended without a step
        self._batch = StepBatch(sequences=[], num_tokens=0)
        self.num_preemptions = 0
        self.num_prefix_queries = 0
        self.num_prefix_hits = 0
        self.num_prefill_tokens = 0
        self.num_decode_tokens = 0

    @property
    def num_running(self) -> int:
        return len(self._running)

    @property
    def num_waiting(self) -> int:
        return len(self._waiting)

    @property
    def num_context_tokens(self) -> int:
        """Context lengths of the running sequences, added up."""
        return sum(share.sequence.num_computed_tokens for share in self._running)

    @property
    def num_pending_prefill_tokens(self) -> int:
        """Tokens that are known but not computed; the one that a decode computes next is not counted."""
        return sum(sequence.num_uncomputed_tokens - 1 for sequence in self._sequences.values())

    @property
    def has_work(self) -> bool:
        return bool(self._sequences or self._ended)

    def add(self, sequence: Sequence) -> None:
        """Queues a sequence; one that was submitted complete only has its end reported.

        Raises:
            AlreadyExistsError: its id is in use.
            InvalidArgumentError: its prompt is empty, too long to be answered, or holds an unknown token.
        """
        if sequence.request_id in self._sequences:
            raise AlreadyExistsError(
                f"Request '{sequence.request_id}' has not ended yet.",
                hint="Use a new request id for every request.",
                field="request_id",
            )
        check_tokens(sequence, max_sequence_len=self._max_sequence_len, vocab_size=self._config.vocab_size)
        reason = self._finish_reason(sequence)
        if reason is not None:
            self._ended.append(end_output(sequence, reason=reason))
            return
        self._sequences[sequence.request_id] = sequence
        self._waiting[sequence.request_id] = sequence

    def cancel(self, request_id: str) -> bool:
        """Forgets a sequence and frees its blocks; False if it is unknown or has ended: a cancel may come late."""
        sequence = self._sequences.get(request_id)
        if sequence is None:
            return False
        if sequence.status is SequenceStatus.WAITING:
            del self._waiting[request_id]
        self._finish(sequence)
        self._drop_finished()
        return True

    def schedule(self) -> StepBatch:
        """The next step's work. The batch is valid until the next call; its objects are used again."""
        self._batch.sequences.clear()
        self._batch.num_tokens = self.num_prefill_tokens = self.num_decode_tokens = 0
        self._schedule_running()
        self._admit_waiting()
        assert self._batch.sequences or not self._sequences, "sequences are left that cannot be scheduled"
        return self._batch

    def commit(self, batch: StepBatch, result: StepResult) -> list[SequenceOutput]:
        """Books what the step computed and sampled; returns its outputs, those of ended sequences among them."""
        outputs, self._ended = self._ended, []
        num_before = len(self._sequences)
        for share, token_id, logprobs, prompt_logprobs in zip(
            batch.sequences, result.token_ids, result.logprobs, result.prompt_logprobs, strict=True
        ):
            sequence = share.sequence
            if prompt_logprobs:
                sequence.keep_prompt_logprobs(prompt_logprobs)
            sequence.num_computed_tokens += share.num_new_tokens
            self.blocks.publish(sequence)
            if share.samples:
                assert token_id is not None, f"nothing was sampled for {sequence.request_id}"
                outputs.append(self._append(sequence, token_id, logprobs))
        if len(self._sequences) < num_before:
            self._drop_finished()
        return outputs

    def fail_all(self, error: str) -> list[SequenceOutput]:
        """Ends every sequence with an error and frees all blocks; returns their last outputs."""
        outputs, self._ended = self._ended, []
        for sequence in list(self._sequences.values()):
            self._finish(sequence)
            outputs.append(end_output(sequence, reason=FinishReason.ERROR, error=error))
        self._waiting.clear()
        self._running.clear()
        return outputs

    def check_integrity(self) -> None:
        """Asserts that the books of blocks and sequences agree, and that sequences stand in the order of arrival."""
        running = [share.sequence for share in self._running]
        waiting = list(self._waiting.values())
        self.blocks.check_integrity(sequence.block_table for sequence in running)
        assert {*running, *waiting} == set(self._sequences.values())
        assert all(sequence.status is SequenceStatus.RUNNING for sequence in running)
        assert all(sequence.status is SequenceStatus.WAITING and not sequence.block_table for sequence in waiting)
        assert all(a.arrival_s <= b.arrival_s for a, b in pairwise([*running, *waiting])), "not in order"

    def _schedule_running(self) -> None:
        index = 0
        while index < len(self._running):  # which preemption shortens from its end
            share = self._running[index]
            num_uncomputed = share.sequence.num_uncomputed_tokens
            num_new = 1 if num_uncomputed == 1 else min(num_uncomputed, self._prefill_budget())
            if num_new and self._make_room(share, num_new):
                self._schedule(share, num_new)
            index += 1

    def _make_room(self, share: ScheduledSequence, num_new: int) -> bool:
        """Gives the share its blocks, at the expense of the latest arrivals; False if it is itself the latest."""
        num_tokens = share.sequence.num_computed_tokens + num_new
        while not self.blocks.grow(share.sequence, num_tokens=num_tokens):
            victim = self._running.pop()
            self._preempt(victim.sequence)
            if victim is share:
                return False
        return True

    def _preempt(self, sequence: Sequence) -> None:
        self.blocks.free(sequence)
        sequence.status = SequenceStatus.WAITING
        sequence.num_preemptions += 1
        self.num_preemptions += 1
        self._waiting[sequence.request_id] = sequence
        self._waiting.move_to_end(sequence.request_id, last=False)

    def _admit_waiting(self) -> None:
        while self._waiting and len(self._running) < self._config.max_num_seqs and self._prefill_budget() > 0:
            sequence = next(iter(self._waiting.values()))
            num_new = self._admit(sequence)
            if num_new == 0:
                return
            del self._waiting[sequence.request_id]
            sequence.status = SequenceStatus.RUNNING
            share = ScheduledSequence(sequence, num_new, samples=False)
            self._running.append(share)
            self._schedule(share, num_new)

    def _admit(self, sequence: Sequence) -> int:
        """Gives a waiting sequence its first blocks; returns the tokens to compute now, 0 if it must wait on.

        A new sequence needs room for its first chunk only. One that was preempted comes back when all of its tokens
        fit, lest it lose its blocks again before it gets as far as it was.
        """
        num_reserved = self._config.num_watermark_blocks if self._running else 0
        if self.blocks.num_available_blocks <= num_reserved:
            return 0
        prefix = self.blocks.find_prefix(sequence)
        num_cached = len(prefix) * self._config.block_size
        num_new = min(len(sequence) - num_cached, self._prefill_budget())
        num_needed = len(sequence) if sequence.num_preemptions else num_cached + num_new
        if not self.blocks.fits(prefix=prefix, num_tokens=num_needed, num_reserved=num_reserved):
            return 0
        self.blocks.adopt(sequence, prefix=prefix)
        grown = self.blocks.grow(sequence, num_tokens=num_cached + num_new)
        assert grown, "blocks that fit are not there"
        if sequence.num_preemptions == 0:
            self._count_prefix(sequence, num_cached)
        return num_new

    def _schedule(self, share: ScheduledSequence, num_new: int) -> None:
        num_uncomputed = share.sequence.num_uncomputed_tokens
        share.num_new_tokens = num_new
        share.samples = num_new == num_uncomputed
        self._batch.sequences.append(share)
        self._batch.num_tokens += num_new
        if num_uncomputed == 1:
            self.num_decode_tokens += 1
        else:
            self.num_prefill_tokens += num_new

    def _prefill_budget(self) -> int:
        budget = self._config.max_num_batched_tokens - self._batch.num_tokens
        limit = self._config.max_num_prefill_tokens
        return budget if limit is None else min(budget, limit - self.num_prefill_tokens)

    def _append(self, sequence: Sequence, token_id: int, logprobs: TokenLogprobs | None) -> SequenceOutput:
        sequence.token_ids.append(token_id)
        reason = self._finish_reason(sequence)
        if reason is not None:
            self._finish(sequence)
        return token_output(sequence, logprobs=logprobs, reason=reason)

    def _finish_reason(self, sequence: Sequence) -> FinishReason | None:
        return finish_reason(sequence, eos_token_ids=self._eos_token_ids, max_sequence_len=self._max_sequence_len)

    def _finish(self, sequence: Sequence) -> None:
        self.blocks.free(sequence)
        sequence.status = SequenceStatus.FINISHED
        del self._sequences[sequence.request_id]

    def _drop_finished(self) -> None:
        self._running = [share for share in self._running if share.sequence.status is SequenceStatus.RUNNING]

    def _count_prefix(self, sequence: Sequence, num_cached_tokens: int) -> None:
        sequence.num_cached_tokens = num_cached_tokens
        if self._config.enable_prefix_cache and not sequence.owes_prompt_logprobs:
            self.num_prefix_queries += len(sequence)
            self.num_prefix_hits += num_cached_tokens
