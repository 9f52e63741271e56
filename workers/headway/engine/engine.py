"""The engine: requests in, tokens out, one step at a time."""

from collections import Counter, deque
from collections.abc import Callable, Sequence

from headway.core.errors import NotFoundError
from headway.core.request import GenerationRequest, SequenceOutput
from headway.core.step_work import StepWork
from headway.engine.batch import Runner, StepBatch, StepResult
from headway.engine.bisection import Bisection
from headway.engine.block_manager import BlockManager
from headway.engine.config import EngineConfig
from headway.engine.events import BlockEventLog
from headway.engine.input_processor import InputProcessor
from headway.engine.kv_transfer import KvTransfer
from headway.engine.micro_batch import MicroBatch
from headway.engine.output_processor import OutputProcessor
from headway.engine.phases import PhaseListener
from headway.engine.pins import PinnedPrefix
from headway.engine.preemption import PreemptionPolicy
from headway.engine.request_blocks import RequestBlocks, request_blocks
from headway.engine.request_queues import RequestQueues
from headway.engine.scheduler import Scheduler
from headway.engine.stats import BlockStats, ShardStats, StepStats

_FAILED = "The worker failed to compute this request; its log says why."


class Engine:
    """Generates tokens for many requests at once.

    It belongs to one thread: its owner calls every method from there, and steps while `has_work`. Only `events` may
    be read from elsewhere.

    Attributes:
        config: its limits.
        events: what the prefix cache gained and lost.
        kv_transfer: of blocks, to other engines and from them.
        num_failures: since a step last succeeded, how often requests had to end because steps failed.
    """

    def __init__(
        self,
        config: EngineConfig,
        *,
        runner: Runner,
        clock: Callable[[], float],
        blocks: BlockManager | None = None,
    ) -> None:
        """`clock` gives monotonic seconds; `blocks` manages memory in another way than by paging."""
        self.config = config
        self.events = BlockEventLog(num_events=config.num_logged_events)
        self._blocks = blocks or BlockManager(
            config.num_blocks,
            block_size=config.block_size,
            num_host_blocks=config.num_host_blocks,
            enable_prefix_cache=config.enable_prefix_cache,
            salt=config.cache_salt,
            events=self.events,
            num_shards=config.num_shards,
        )
        self._queues = RequestQueues(self._blocks)
        self._policy = PreemptionPolicy(config.preemption)
        self._input_processor = InputProcessor(config, queues=self._queues, blocks=self._blocks)
        self._scheduler = Scheduler(config, queues=self._queues, blocks=self._blocks, policy=self._policy)
        self._output_processor = OutputProcessor(config, queues=self._queues, blocks=self._blocks)
        self.kv_transfer = KvTransfer(
            config, queues=self._queues, blocks=self._blocks, owes_copies=self._may_owe_copies
        )
        self._runner = runner
        self._clock = clock
        self._listener: PhaseListener | None = None
        self._in_flight: deque[MicroBatch] = deque()  # in the order of their starts
        self._settled: deque[list[SequenceOutput]] = deque()  # what batches brought that were not finished by a step
        self._failing: MicroBatch | None = None  # what the runner has been given and not said to be well
        self._owed: deque[StepBatch] = deque()  # copies of batches that failed before they were carried out
        self._bisection = Bisection()
        self._owes_step = False  # to those who are not suspected
        self._num_steps = 0
        self._num_prefill_tokens = 0
        self._num_decode_tokens = 0
        self._duration_s = 0.0
        self._finished_s = 0.0
        self._work = StepWork()
        self.num_failures = 0

    @property
    def has_work(self) -> bool:
        return bool(self._queues or self._in_flight or self._settled)

    @property
    def waiting_since_s(self) -> float:
        """When the next step began to wait, in the clock's seconds. It is always the present, so that models that share
        a device take turns.
        """
        return self._clock()

    @property
    def pause_s(self) -> float:
        """Seconds until there is a step to take: none, for a step waits for its result itself."""
        return 0.0

    def tell_phases(self, listener: PhaseListener) -> None:
        """Has `listener` hear how long sequences wait and are computed."""
        self._listener = listener

    def submit(self, request: GenerationRequest) -> None:
        """Queues a request; its outputs come from the steps to follow, the last one with a finish reason.

        Raises:
            AlreadyExistsError: a request with this id has not ended yet.
            InvalidArgumentError: the prompt is empty, too long to be answered here, or holds an unknown token; or a
                beam search needs more memory than there is.
        """
        self.submit_group([request])

    def submit_group(self, requests: Sequence[GenerationRequest]) -> None:
        """Queues the sequences of one prompt, which share its blocks and are admitted and preempted together.

        They differ in their ids, seeds and tokens already generated. Each has its own outputs and its own `cancel`.
        A beam search is a group of one request.

        Raises:
            AlreadyExistsError, InvalidArgumentError: as for `submit`; or the requests do not belong together, or are
                more than `max_num_seqs`. None of them is queued then.
        """
        self._input_processor.accept(requests, arrival_s=self._clock())

    def cancel(self, request_id: str) -> bool:
        """Frees a request's blocks at once; no output of it follows, and its id is free again.

        False if it is unknown or has ended: a cancel may come late.
        """
        is_known = self._queues.find(request_id) is not None
        if is_known:
            self._queues.end(request_id)
        return is_known

    def step(self) -> list[SequenceOutput]:
        """Starts as many batches as may be under way, and returns what the oldest one brought.

        It brings at most one output for each request. What the runner raises passes through, and every sequence is as
        it was before: the owner is to call `recover`, and may step again.
        """
        if self._settled:
            return self._settled.popleft()
        if self._failing is not None:  # since `settle`, which told its caller only
            self._recover(self._failing, _FAILED)
        started_s = self._clock()
        self._start_batches(started_s)
        if self._in_flight:
            return self._finish_oldest()
        return self._book(MicroBatch(started_s=started_s), StepResult([], []))

    def settle(self) -> None:
        """Finishes every batch under way, so that blocks can be read and written; the next steps tell what came of it.

        What the runner raises passes through; the next step recovers from it.
        """
        while self._in_flight:
            self._settled.append(self._finish_oldest())

    def recover(self, error: str) -> list[SequenceOutput]:
        """Recovers from an error that the runner raised. Returns the last outputs of the requests that end with this
        error, if any.

        The failed batch's requests are computed in ever smaller batches, and nobody else is; one with which such a
        batch fails that holds nobody else ends. The others get what they would have got. Batches that were started
        behind the failed one are finished, and computed anew, since they build upon it. All requests end where it was
        not the runner that failed.
        """
        if self._failing is None or not (self._failing.groups or self._failing.is_void):
            self._failing = None
            self.num_failures += 1
            return self.fail_all(error)
        self._recover(self._failing, error)
        return self._queues.take_ended()

    def _recover(self, failing: MicroBatch, error: str) -> None:
        self._failing = None
        for micro_batch in self._in_flight:
            micro_batch.is_void = True
        if failing.batch.owes_copies:
            self._owed.append(failing.batch.copies_alone())
        if failing.is_void:
            return
        culprit = self._bisection.note_failure(failing.groups, is_trial=failing.is_trial)
        if culprit is not None:
            self.num_failures += 1
            self._owes_step = True
            for request_id in {sequence.request_id for sequence in culprit.sequences}:
                self._queues.fail(request_id, error)

    def fail_all(self, error: str) -> list[SequenceOutput]:
        """Ends every request with an error, frees all blocks, and returns the last outputs.

        Batches that are under way stay so until they are stepped through; they bring nothing any more.
        """
        for request_id in self._queues.request_ids:
            self._queues.fail(request_id, error)
        return self._queues.take_ended()

    def pin(self, pin_id: str, token_ids: Sequence[int]) -> None:
        """Keeps the whole blocks of a prefix on the device, from when a request first computes them until `unpin`.

        Raises:
            FailedPreconditionError, InvalidArgumentError, ResourceExhaustedError: as `BlockManager.pin` does.
        """
        self._blocks.pin(pin_id, token_ids)

    def unpin(self, pin_id: str) -> bool:
        """Lets a prefix go like any other content; False if the pin is unknown."""
        return self._blocks.unpin(pin_id)

    def pinned_prefixes(self) -> list[PinnedPrefix]:
        return self._blocks.pinned_prefixes()

    def set_shard_weights(self, weights: Sequence[float]) -> None:
        """Sets how the cache's shards share the blocks; raises InvalidArgumentError, as `BlockManager` does."""
        self._blocks.set_shard_weights(weights)

    def stats(self) -> StepStats:
        scheduler, queues, output_processor, blocks = (
            self._scheduler,
            self._queues,
            self._output_processor,
            self._blocks,
        )
        return StepStats(
            num_steps=self._num_steps,
            num_running=queues.num_running,
            num_waiting=queues.num_waiting,
            num_swapped=queues.num_swapped,
            num_context_tokens=queues.num_context_tokens,
            num_pending_prefill_tokens=queues.num_pending_prefill_tokens,
            num_preemptions=scheduler.num_preemptions,
            num_swaps=scheduler.num_swaps,
            num_used_blocks=blocks.num_used_blocks,
            num_cached_blocks=blocks.num_cached_blocks,
            num_free_blocks=blocks.num_free_blocks,
            num_used_host_blocks=blocks.num_used_host_blocks,
            num_prefix_queries=scheduler.num_prefix_queries,
            num_prefix_hits=scheduler.num_prefix_hits,
            num_prefill_tokens=self._num_prefill_tokens,
            num_decode_tokens=self._num_decode_tokens,
            num_draft_tokens=output_processor.num_draft_tokens,
            num_accepted_tokens=output_processor.num_accepted_tokens,
            num_moved_blocks=blocks.num_moved_blocks,
            duration_s=self._duration_s,
            work=self._work,
        )

    def block_stats(self) -> BlockStats:
        """Blocks by state, sharing and waste. Takes time proportional to all block tables."""
        return self._blocks.stats(self._queues.sequences)

    def shard_stats(self) -> tuple[ShardStats, ...]:
        """Blocks and weight of each shard of the cache. Takes next to no time."""
        return self._blocks.shard_stats()

    def request_ids(self) -> list[str]:
        """The ids of all requests that have not ended."""
        return self._queues.request_ids

    def describe(self, request_id: str) -> RequestBlocks:
        """The block tables of a request and its siblings, and who shares them. Takes as long as `block_stats`.

        Raises:
            NotFoundError: it is unknown or has ended.
        """
        group = self._queues.find(request_id)
        if group is None:
            raise NotFoundError(f"Request '{request_id}' is not running or waiting here.", field="request_id")
        block_size = self.config.block_size
        return request_blocks(request_id, group=group, groups=self._queues.groups, block_size=block_size)

    def check_integrity(self) -> None:
        """Asserts that the engine's state is consistent: every block has exactly one state, every sequence one
        place."""
        self._queues.check_integrity()
        num_batches = Counter(id(group) for micro_batch in self._in_flight for group in micro_batch.groups)
        for group in self._queues.groups:
            assert group.num_in_flight == num_batches[id(group)], "a group is in flight, or is not, unnoticed"
        done_ahead = [scheduled for micro_batch in self._in_flight for scheduled in micro_batch.done_ahead]
        num_pending = Counter(id(scheduled.sequence) for scheduled in done_ahead if scheduled.samples)
        for sequence in self._queues.sequences:
            assert sequence.num_pending_tokens == num_pending[id(sequence)], "a token is pending, or is not, unnoticed"

    def _may_owe_copies(self) -> bool:
        return bool(self._owed) or self._failing is not None

    def _start_batches(self, started_s: float) -> None:
        if self._owed or self._bisection.is_active:
            self._start_after_failure(started_s)
            return
        while self._scheduler.may_start(num_in_flight=len(self._in_flight)):
            micro_batch = self._scheduler.schedule(num_in_flight=len(self._in_flight), now_s=started_s)
            if not micro_batch.batch.has_work:
                return
            self._start(micro_batch, started_s)

    def _start_after_failure(self, started_s: float) -> None:
        """One batch at a time: the copies that are owed, and then the suspects by themselves.

        When one is found, the others have a step before the search goes on: it shows whether anything succeeds at all.
        """
        if self._in_flight:
            return
        if self._owed:
            self._start(MicroBatch(self._owed.popleft()), started_s)
            return
        others = []
        if self._owes_step:
            self._owes_step = False
            others = [group for group in self._queues.running if not self._bisection.is_suspect(group)]
        among = others or self._bisection.suspects
        micro_batch = self._scheduler.schedule(num_in_flight=0, now_s=started_s, among=among)
        micro_batch.is_trial = not others and bool(micro_batch.groups)
        if not micro_batch.groups and not others:
            self._bisection.note_success()
        if micro_batch.batch.has_work:
            self._start(micro_batch, started_s)

    def _start(self, micro_batch: MicroBatch, started_s: float) -> None:
        micro_batch.started_s = started_s
        self._failing = micro_batch
        self._runner.start(micro_batch.batch)
        self._failing = None
        micro_batch.mark_started()
        self._in_flight.append(micro_batch)

    def _finish_oldest(self) -> list[SequenceOutput]:
        self._failing = micro_batch = self._in_flight.popleft()
        micro_batch.mark_finished()
        result = self._runner.finish()
        self._failing = None
        if micro_batch.is_void:
            return self._queues.take_ended()
        if micro_batch.groups:
            self.num_failures = 0
            if micro_batch.is_trial:
                self._bisection.note_success()
        return self._book(micro_batch, result)

    def _book(self, micro_batch: MicroBatch, result: StepResult) -> list[SequenceOutput]:
        outputs = self._output_processor.process(micro_batch.batch, result)
        self._num_steps += 1
        self._observe(micro_batch, result)
        return outputs

    def _observe(self, micro_batch: MicroBatch, result: StepResult) -> None:
        """Takes the figures of a batch that has just been processed.

        Its duration is what it held up the others: while it was behind another one in the pipeline, that one's counts.
        """
        batch, now_s = micro_batch.batch, self._clock()
        self._duration_s = now_s - max(micro_batch.started_s, self._finished_s)
        self._finished_s = now_s
        self._work += batch.work(duration_s=self._duration_s - result.copy_s)
        self._num_prefill_tokens = micro_batch.num_prefill_tokens
        self._num_decode_tokens = micro_batch.num_decode_tokens
        self._policy.observe_step(
            num_prefill_tokens=micro_batch.num_prefill_tokens,
            num_tokens=batch.num_tokens,
            num_copies=len(batch.swap_out) + len(batch.swap_in),
            duration_s=self._duration_s,
            copy_s=result.copy_s,
        )
        self._scheduler.observe_step(batch.num_tokens, self._duration_s - result.copy_s)
        self._observe_phases(now_s)

    def _observe_phases(self, now_s: float) -> None:
        begun, ended, listener = self._output_processor.begun, self._output_processor.ended, self._listener
        for group in begun:
            assert group.scheduled_s is not None, "a token was sampled before its step"
            group.first_token_s = now_s
            if listener is not None:
                queue_s = group.scheduled_s - group.arrival_s
                listener.observe_first_token(queue_s=queue_s, prefill_s=now_s - group.scheduled_s)
        for group in ended:
            assert group.first_token_s is not None, "a sequence ended before its first token"
            if listener is not None:
                listener.observe_end(decode_s=now_s - group.first_token_s)
        begun.clear()
        ended.clear()
