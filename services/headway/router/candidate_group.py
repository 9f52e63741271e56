"""A group that could take a request, and how long it would take."""

from dataclasses import dataclass, replace

from headway.core.latency import LatencyModel
from headway.core.plan.serving import Role
from headway.core.prefix_source import PrefixSource
from headway.router.latency_predictor import LeasedJob
from headway.router.place import Place
from headway.router.request import RoutingRequest

# Where the plan knows no latency model, groups are compared as if all were this one; nothing is predicted from it.
NOMINAL = LatencyModel(
    base_s=0.005,
    per_prefill_token_s=1e-4,
    per_prefill_pair_s=0.0,
    per_decode_s=1e-3,
    per_context_token_s=1e-6,
    origin="nominal",
)


@dataclass(frozen=True, slots=True, kw_only=True)
class CandidateGroup:
    """One group at one moment, with all that a decision needs of it.

    Attributes:
        latency: seconds of its steps.
        others_s: between two of them, for a step of each other model on the group that has something to do.
        num_sequences: running, waiting, and leased without having been reported yet.
        num_pending_tokens: prompt tokens of those that are still to be computed, and
        num_overtaken_tokens: how many of them after the request's own, which has a better place in line.
        num_context_tokens: that those have in the cache.
        num_cache_tokens: that the KV cache holds at most.
        num_cached_tokens: of the request's prompt that the group holds.
        mean_output_tokens: of a sequence of this model, as completed ones had it.
        num_places: sequences that it may yet be given.
        last_chosen: number of the latest decision for it.
        role: what the plan has it do.
        num_free_tokens: that the blocks hold which a new sequence could have.
        block_bytes: of a KV block of `block_size` tokens; 0 where blocks cannot go to other groups.
        fetch_bytes_per_s: at which blocks came to it from others lately; 0 where none did.
        source: where it would fetch more of the prompt from, and
        num_fetched_tokens, fetch_s: how many tokens, and how long that would take.
        job: what the request is to the group's line, of a model that answers in one pass, and
        answer_s: until the group has its answer if nothing ahead of it is batched, and
        soonest_s: until the client has it if it went ahead of all that waits.
        is_unproven: whether its times rest on an estimate while the first live step is under way, or on fewer first
            tokens than are about to come.
        is_harmful: whether somebody whom the group has admitted would be late for it.
        overhead_s: that an answer takes from the client to the group and back, besides the model.
        adapter_s: until the request's adapter is loaded; 0 where it is, or where there is none.
        usual: seconds of its steps when it is not slow, where it has nothing to do and nobody knows how fast it is now;
            None elsewhere.
        decode_at: where the sequences go on once their prompt is computed; None: they stay.
    """

    worker_id: str
    group_id: str
    endpoint: str
    latency: LatencyModel
    num_sequences: int
    num_pending_tokens: int
    num_context_tokens: int
    num_cache_tokens: int
    max_num_seqs: int
    max_num_batched_tokens: int
    num_cached_tokens: int
    mean_output_tokens: float
    num_places: int
    last_chosen: int
    role: Role = Role.BOTH
    num_free_tokens: int = 0
    block_size: int = 0
    block_bytes: int = 0
    fetch_bytes_per_s: float = 0.0
    source: PrefixSource | None = None
    num_fetched_tokens: int = 0
    fetch_s: float = 0.0
    decode_at: "CandidateGroup | None" = None
    others_s: float = 0.0
    job: LeasedJob | None = None
    answer_s: float = 0.0
    soonest_s: float = 0.0
    is_unproven: bool = False
    is_harmful: bool = False
    num_overtaken_tokens: int = 0
    overhead_s: float = 0.0
    adapter_s: float = 0.0
    usual: LatencyModel | None = None

    @property
    def is_predictable(self) -> bool:
        """Whether its times are predictions, rather than for comparison only."""
        return self.latency is not NOMINAL and (self.decode_at is None or self.decode_at.is_predictable)

    @property
    def has_room(self) -> bool:
        """Whether it may be given another lease."""
        return self.num_places > 0

    def place(self, model: str) -> Place:
        """A model on the group."""
        return self.group_id, model

    def wait_s(self, request: RoutingRequest) -> float:
        """Returns the seconds until the request's own prefill begins: its turn among the running ones, and the prompts
        ahead of it.

        For a model that answers in one pass, the seconds until the answer; there is no prefill to tell apart.
        """
        if self.job is not None:
            return self.answer_s
        if self.num_sequences == 0:
            return self.others_s / 2  # of the step that is under way
        step_s = self.step_s()
        wait_s = step_s / 2  # of the step that is under way
        wait_s += (self.num_pending_tokens - self.num_overtaken_tokens) * self.pending_token_s()
        num_slots = self._num_slots(request)
        num_surplus = self.num_sequences + request.num_sequences - num_slots
        if num_surplus > 0:  # the slots' sequences end one after the other
            wait_s += num_surplus / num_slots * self.mean_output_tokens * step_s
        return wait_s

    def prefill_s(self, request: RoutingRequest) -> float:
        """Returns the seconds to load the adapter, fetch what others hold of the prompt and compute the rest, in
        chunks beside the running decodes.
        """
        if self.job is not None:
            return 0.0
        num_tokens = self.num_uncached_tokens(request)
        num_chunks = -(-num_tokens // self.chunk_tokens())
        return self.adapter_s + self.fetch_s + num_chunks * self.step_s() + self.compute_s(request)

    def compute_s(self, request: RoutingRequest) -> float:
        """Returns the seconds that the request's prompt adds to the steps that compute it."""
        num_tokens = self.num_uncached_tokens(request)
        pairs = num_tokens * (self.num_cached_tokens + self.num_fetched_tokens + num_tokens / 2)
        return self.latency.per_prefill_token_s * num_tokens + self.latency.per_prefill_pair_s * pairs

    def pending_token_s(self) -> float:
        """Returns the seconds to compute one of the prompt tokens that wait, with its part of a step."""
        mean_prompt = self.num_pending_tokens / max(1, self.num_sequences)
        return (
            self.step_s() / self.chunk_tokens()
            + self.latency.per_prefill_token_s
            + self.latency.per_prefill_pair_s * mean_prompt / 2
        )

    def saved_s(self, request: RoutingRequest) -> float:
        """Returns the seconds of computing that the fetch saves."""
        alone = replace(self, num_fetched_tokens=0, fetch_s=0.0)
        return alone.prefill_s(request) - (self.prefill_s(request) - self.fetch_s)

    def ttft_s(self, request: RoutingRequest) -> float:
        """Predicted time to first token, at the client."""
        return self.wait_s(request) + self.prefill_s(request) + self.overhead_s

    def tpot_s(self, request: RoutingRequest) -> float:
        """Predicted time per output token, with the request among the running ones."""
        if self.decode_at is not None:
            return self.decode_at.tpot_s(request)
        num_sequences = self.num_sequences + request.num_sequences
        num_decodes = min(num_sequences, self._num_slots(request))
        context_tokens = self._total_context_tokens(request) * num_decodes // num_sequences
        return self.others_s + self.latency.decode_s(num_decodes=num_decodes, context_tokens=context_tokens)

    def sustained_tpot_s(self, request: RoutingRequest) -> float:
        """The same over the whole output, while the contexts grow by what outputs usually have."""
        if self.decode_at is not None:
            return self.decode_at.sustained_tpot_s(request)
        num_decodes = min(self.num_sequences + request.num_sequences, self._num_slots(request))
        num_grown = num_decodes * min(request.max_output_tokens, self.mean_output_tokens) / 2
        return self.tpot_s(request) + self.latency.per_context_token_s * num_grown

    def num_gaps(self, request: RoutingRequest) -> float:
        """Returns the number of gaps between the tokens of an answer that is as long as this model's usually are."""
        usual_tokens = self.mean_output_tokens if self.decode_at is None else self.decode_at.mean_output_tokens
        return max(0.0, min(request.max_output_tokens, usual_tokens) - 1)

    def decode_s(self, request: RoutingRequest) -> float:
        """Returns the seconds to generate as many tokens as a sequence of this model usually has."""
        if self.decode_at is not None:
            return self.decode_at.decode_s(request)
        return min(request.max_output_tokens, self.mean_output_tokens) * self.tpot_s(request)

    def e2e_s(self, request: RoutingRequest) -> float:
        """Predicted time to the end of an answer that is as long as this model's usually are."""
        return self.ttft_s(request) + self.num_gaps(request) * self.tpot_s(request)

    def num_uncached_tokens(self, request: RoutingRequest) -> int:
        return max(1, request.num_prompt_tokens - self.num_cached_tokens - self.num_fetched_tokens)

    def step_s(self) -> float:
        """A step's decodes, without any prefill, and the other models' turns before it."""
        latency = self.latency
        return (
            self.others_s
            + latency.base_s
            + latency.per_decode_s * min(self.num_sequences, self.max_num_seqs)
            + latency.per_context_token_s * self.num_context_tokens
        )

    def chunk_tokens(self) -> int:
        """Prefill tokens that a step takes beside its decodes."""
        return max(1, self.max_num_batched_tokens - min(self.num_sequences, self.max_num_seqs))

    def _num_slots(self, request: RoutingRequest) -> int:
        """Sequences that can run at once, as the batch and the memory allow."""
        mean_tokens = self._total_context_tokens(request) / (self.num_sequences + request.num_sequences)
        return max(1, min(self.max_num_seqs, int(self.num_cache_tokens / max(1.0, mean_tokens))))

    def _total_context_tokens(self, request: RoutingRequest) -> int:
        own = request.num_prompt_tokens * request.num_sequences
        return self.num_context_tokens + self.num_pending_tokens + own
