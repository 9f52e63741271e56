"""A model small enough to know by heart, and a runner that checks every slot of the KV cache it is given.

The model's "keys and values" at a position are a hash of all tokens up to it, and the next token follows from the
last position's entry. The runner computes only from what lies in the blocks, so a wrong table, a block with two
owners, a copy that was left out or a skipped token changes the output or fails a check.

It computes a batch when it is started, which is the order in which a pipeline computes, and keeps the result back.
What a failed batch has written is lost.
"""

from __future__ import annotations

import itertools
from collections import deque
from dataclasses import dataclass, field, replace

from headway.core.request import FinishReason, GenerationRequest, Hypothesis, SamplingParams, TokenLogprobs
from headway.engine.batch import Sample, ScheduledSequence, StepBatch, StepResult
from headway.engine.beam import BeamState
from headway.engine.config import EngineConfig
from headway.engine.limits import stop_token_ids
from headway.engine.sequence import Sequence

MODULUS = (1 << 61) - 1


@dataclass(frozen=True)
class OracleModel:
    """Next token = pure function of the token prefix and the seed."""

    vocab_size: int = 50

    def entries(self, token_ids: list[int], *, before: int = 0) -> list[int]:
        """KV entries of consecutive tokens, given the entry `before` them."""
        chain = itertools.accumulate(
            token_ids, lambda entry, token: (entry * 31 + token + 7) ** 2 % MODULUS, initial=before
        )
        return list(chain)[1:]

    def next_token(self, entry: int, sampling: SamplingParams) -> int:
        """With a low temperature the next token follows from the last one and few others: texts repeat themselves."""
        if sampling.temperature < 0.5:
            return (entry // 1009 % 3 + sampling.seed) % self.vocab_size
        return (entry // 1009 + 17 * sampling.seed) % self.vocab_size

    def candidates(self, entry: int, count: int) -> tuple[tuple[int, float], ...]:
        """The best next tokens of a beam, and log probabilities that differ for every token and prefix."""
        scores = [(token, -0.5 - (entry * (2 * token + 3) >> 7) % 10_007 / 1000) for token in range(self.vocab_size)]
        return tuple(sorted(scores, key=lambda score: -score[1])[:count])

    def logprobs(self, token_id: int, entry: int) -> TokenLogprobs:
        return TokenLogprobs(token_id, -float(entry % 997), rank=1 + entry % 7)

    def generate(self, request: GenerationRequest, config: EngineConfig) -> tuple[list[int], FinishReason]:
        """Plain generation, one token after the other: what the engine's output must equal."""
        sampling, output = request.sampling, list(request.output_token_ids)
        stops = {*sampling.stop_token_ids, *(() if sampling.ignore_eos else config.eos_token_ids)}
        capacity = min(config.max_model_len, config.num_blocks * config.block_size + 1)
        while True:
            tokens = [*request.prompt_token_ids, *output]
            if len(output) > sampling.min_tokens and output[-1] in stops:
                return output, FinishReason.STOP
            if len(output) >= sampling.max_tokens or len(tokens) >= capacity:
                return output, FinishReason.LENGTH
            output.append(self.next_token(self.entries(tokens)[-1], sampling))

    def search(self, request: GenerationRequest, config: EngineConfig) -> tuple[Hypothesis, ...]:
        """Beam search without an engine: every beam is computed from its first token on, in every step."""
        sampling, prompt = request.sampling, list(request.prompt_token_ids)
        assert sampling.beam is not None
        capacity = min(config.max_model_len, config.num_blocks * config.block_size + 1)
        state = BeamState(
            sampling.beam,
            stop_token_ids=stop_token_ids(sampling, eos_token_ids=frozenset(config.eos_token_ids)),
            min_tokens=sampling.min_tokens,
            max_tokens=min(sampling.max_tokens, capacity - len(prompt)),
        )
        beams: list[list[int]] = [[]]
        while not state.is_done:
            for index, output in enumerate(beams):
                state.offer(
                    index, self.candidates(self.entries([*prompt, *output])[-1], num_candidates(sampling, config))
                )
            beams = [[*beams[parent], token] for parent, token in state.advance(beams)]
        return state.hypotheses

    def prompt_logprobs(self, prompt: tuple[int, ...]) -> tuple[TokenLogprobs, ...]:
        entries = self.entries(list(prompt))
        return tuple(self.logprobs(token, entry) for token, entry in zip(prompt[1:], entries, strict=False))


def num_candidates(sampling: SamplingParams, config: EngineConfig) -> int:
    assert sampling.beam is not None
    stops = stop_token_ids(sampling, eos_token_ids=frozenset(config.eos_token_ids))
    return max(2, 1 + len(stops)) * sampling.beam.width


class Poisoned(Exception):
    """What a batch raises that holds a request which cannot be computed."""


@dataclass(frozen=True)
class Facts:
    """What a runner may rely on until a scheduled sequence's result is there."""

    sequence: Sequence
    token_ids: tuple[int, ...]
    start: int
    num_new_tokens: int
    samples: bool
    draft_token_ids: tuple[int, ...]
    followers: tuple[tuple[Sequence, int], ...]  # and how many tokens each has

    @classmethod
    def of(cls, scheduled: ScheduledSequence) -> Facts:
        return cls(
            sequence=scheduled.sequence,
            token_ids=tuple(scheduled.sequence.token_ids),
            start=scheduled.start,
            num_new_tokens=scheduled.num_new_tokens,
            samples=scheduled.samples,
            draft_token_ids=scheduled.draft_token_ids,
            followers=tuple((follower, len(follower)) for follower in scheduled.followers),
        )

    def hold(self, scheduled: ScheduledSequence) -> bool:
        """Tokens may have been added that were in flight when the scheduled sequence was started."""
        now, num_pending = Facts.of(scheduled), self.start + self.num_new_tokens - len(self.token_ids)
        num_added = len(now.token_ids) - len(self.token_ids)
        assert 0 <= num_added <= max(num_pending, 0)
        return replace(now, token_ids=now.token_ids[: len(self.token_ids)]) == self


@dataclass
class OracleRunner:
    """Runs the model on a simulated KV store of two tiers, checking each batch against the engine's promises."""

    model: OracleModel
    config: EngineConfig
    store: dict[int, int] = field(default_factory=dict)  # slot -> entry
    host: dict[int, int] = field(default_factory=dict)
    batches: list[list[tuple[str, int]]] = field(
        default_factory=list
    )  # (request id, tokens) of each scheduled sequence
    failures: list[Exception] = field(default_factory=list)  # raised by the batches that are finished next
    num_copied: int = 0
    in_flight: deque[tuple[StepBatch, list[Facts], list[int], StepResult]] = field(default_factory=deque)
    depths: list[int] = field(default_factory=list)  # batches in flight at each finish
    num_future: int = 0  # tokens that were computed before their sequences had them
    poison: set[str] = field(default_factory=set)  # requests with which every batch fails when it is finished
    refused: set[str] = field(default_factory=set)  # and when it is started, before anything is done
    _pending: dict[Sequence, int] = field(default_factory=dict)  # what the batch in flight samples

    def start(self, batch: StepBatch) -> None:
        assert len(self.in_flight) < self.config.num_micro_batches + self.config.runs_ahead
        if any(scheduled.sequence.request_id in self.refused for scheduled in batch.sequences):
            raise Poisoned
        self._pending = self._sampled_in_flight()
        under_way = {scheduled.sequence for _, facts, *_ in self.in_flight for scheduled in facts if scheduled.samples}
        for scheduled in batch.sequences:
            is_future = scheduled.start == len(scheduled.sequence)
            assert is_future == (scheduled.sequence in under_way), "a token before the one it follows"
            assert self.config.runs_ahead or not is_future
            self.num_future += is_future
        facts = list(map(Facts.of, batch.sequences))
        written = [
            self._slot(scheduled, position)
            for scheduled in batch.sequences
            for position in range(scheduled.start, _end(scheduled))
        ]
        self.in_flight.append((batch, facts, written, self._compute(batch)))

    def finish(self) -> StepResult:
        self.depths.append(len(self.in_flight))
        batch, facts, written, result = self.in_flight.popleft()
        assert all(map(Facts.hold, facts, batch.sequences)), "a batch has changed while it was in flight"
        is_poisoned = any(scheduled.sequence.request_id in self.poison for scheduled in batch.sequences)
        if self.failures or is_poisoned:
            for slot in written:
                self.store.pop(slot, None)
            raise Poisoned if is_poisoned else self.failures.pop()
        return result

    def _compute(self, batch: StepBatch) -> StepResult:
        self._copy(self.store, self.host, batch.swap_out)
        self._copy(self.host, self.store, batch.swap_in)
        self._copy(self.store, self.store, batch.block_copies)
        batch.has_copied = True
        self._check_shape(batch)
        for scheduled in batch.sequences:
            self._write(scheduled)
        for scheduled in batch.sequences:
            self._check_content(scheduled)
        return StepResult(
            samples=[self._samples(scheduled) for scheduled in batch.sequences],
            prompt_logprobs=[self._score_prompt(scheduled) for scheduled in batch.sequences],
        )

    def _copy(self, source: dict[int, int], destination: dict[int, int], pairs: list[tuple[int, int]]) -> None:
        """Blocks whole, in the order given; slots that were never written stay so."""
        size = self.config.block_size
        self.num_copied += len(pairs)
        for source_block, destination_block in pairs:
            for offset in range(size):
                entry = source.get(source_block * size + offset)
                if entry is not None:
                    destination[destination_block * size + offset] = entry
                else:
                    destination.pop(destination_block * size + offset, None)

    def _check_shape(self, batch: StepBatch) -> None:
        assert batch.sequences or batch.swap_out or batch.swap_in or batch.block_copies
        self.batches.append(
            [(scheduled.sequence.request_id, scheduled.num_new_tokens) for scheduled in batch.sequences]
        )
        scheduled_sequences = [scheduled.num_new_tokens for scheduled in batch.sequences]
        assert min(scheduled_sequences, default=1) >= 1
        assert batch.num_tokens == sum(scheduled_sequences) <= self.config.max_num_batched_tokens
        assert (
            len(scheduled_sequences) + sum(len(scheduled.followers) for scheduled in batch.sequences)
            <= self.config.max_num_seqs
        )
        for scheduled in batch.sequences:
            sequence, end = scheduled.sequence, _end(scheduled)
            assert scheduled.start == sequence.num_computed_tokens
            assert scheduled.samples == (end == len(self._tokens(scheduled)))
            assert scheduled.samples or not (scheduled.draft_token_ids or scheduled.followers)
            assert not (scheduled.draft_token_ids and scheduled.followers)
            assert len(scheduled.draft_token_ids) <= self.config.num_draft_tokens
            assert len(sequence.block_table) >= -(-end // self.config.block_size)
            for follower in scheduled.followers:
                assert follower.token_ids == sequence.token_ids

    def _write(self, scheduled: ScheduledSequence) -> None:
        start = scheduled.start
        before = self.store[self._slot(scheduled, start - 1)] if start else 0
        new_tokens = self._tokens(scheduled)[start : _end(scheduled)]
        for position, entry in enumerate(self.model.entries(new_tokens, before=before), start):
            self.store[self._slot(scheduled, position)] = entry

    def _check_content(self, scheduled: ScheduledSequence) -> None:
        """After all scheduled sequences have written: a block with two owners shows here."""
        content = [self.store[self._slot(scheduled, position)] for position in range(_end(scheduled))]
        assert content == self.model.entries(self._tokens(scheduled)[: _end(scheduled)])

    def _samples(self, scheduled: ScheduledSequence) -> tuple[Sample, ...]:
        if not scheduled.samples:
            return ()
        sampling = scheduled.sequence.sampling
        num_drafts = len(scheduled.draft_token_ids)
        entries = [
            self.store[self._slot(scheduled, _end(scheduled) - 1 - num_drafts + n)] for n in range(num_drafts + 1)
        ]
        if sampling.beam is not None:
            candidates = self.model.candidates(entries[0], num_candidates(sampling, self.config))
            return (Sample((), candidates=candidates),)
        if scheduled.draft_token_ids:
            return (self._verify(scheduled.sequence, scheduled.draft_token_ids, entries),)
        return tuple(self._sample(sequence, entries[:1]) for sequence in (scheduled.sequence, *scheduled.followers))

    def _verify(self, sequence: Sequence, drafts: tuple[int, ...], entries: list[int]) -> Sample:
        """Accepts drafts while each is what would have been sampled without it."""
        num_right = 0
        while num_right < len(drafts):
            if drafts[num_right] != self.model.next_token(entries[num_right], sequence.sampling):
                break
            num_right += 1
        return self._sample(sequence, entries[: num_right + 1])

    def _sample(self, sequence: Sequence, entries: list[int]) -> Sample:
        sampling = sequence.sampling
        token_ids = tuple(self.model.next_token(entry, sampling) for entry in entries)
        wants_logprobs = sampling.num_logprobs is not None
        scored = [self.model.logprobs(*pair) for pair in zip(token_ids, entries, strict=True)] if wants_logprobs else []
        return Sample(token_ids, logprobs=tuple(scored))

    def _score_prompt(self, scheduled: ScheduledSequence) -> tuple[TokenLogprobs, ...]:
        sequence = scheduled.sequence
        if sequence.sampling.num_prompt_logprobs is None:
            return ()
        positions = range(scheduled.start, min(_end(scheduled), sequence.num_prompt_tokens - 1))
        return tuple(
            self.model.logprobs(sequence.token_ids[position + 1], self.store[self._slot(scheduled, position)])
            for position in positions
        )

    def _sampled_in_flight(self) -> dict[Sequence, int]:
        tokens: dict[Sequence, int] = {}
        for batch, _, _, result in self.in_flight:
            for scheduled, samples in zip(batch.sequences, result.samples, strict=True):
                if samples and samples[0].token_ids:
                    tokens[scheduled.sequence] = samples[0].token_ids[-1]
        return tokens

    def _tokens(self, scheduled: ScheduledSequence) -> list[int]:
        """Of the sequence, with the one that is in flight and the drafts."""
        sequence = scheduled.sequence
        pending = [self._pending[sequence]] if scheduled.start == len(sequence) else []
        return [*sequence.token_ids, *pending, *scheduled.draft_token_ids]

    def _slot(self, scheduled: ScheduledSequence, position: int) -> int:
        block = scheduled.sequence.block_table[position // self.config.block_size]
        assert 0 <= block < self.config.num_blocks
        return block * self.config.block_size + position % self.config.block_size


def _end(scheduled: ScheduledSequence) -> int:
    return scheduled.start + scheduled.num_new_tokens
