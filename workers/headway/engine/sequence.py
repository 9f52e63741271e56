"""A sequence: one request's tokens, how far they are computed, and the blocks that hold their keys and values."""

from array import array
from collections.abc import Sequence as TokenList
from dataclasses import dataclass, field
from enum import Enum, auto
from functools import partial

from headway.core.request import GenerationRequest, SamplingParams, TokenLogprobs
from headway.engine.speculation import NgramIndex


class SequenceStatus(Enum):
    WAITING = auto()  # not started, or preempted: holds no blocks
    RUNNING = auto()
    SWAPPED = auto()  # preempted: holds host blocks
    FINISHED = auto()


@dataclass(slots=True, eq=False, weakref_slot=True)
class Sequence:
    """Mutable state of one request inside the engine.

    Attributes:
        token_ids: prompt, then output.
        num_prompt_tokens: the prompt's length; the output starts there.
        num_computed_tokens: leading tokens whose keys and values lie in the cache; those that batches under way are
            putting there count where others are started behind them.
        num_pending_tokens: tokens behind `token_ids` that batches under way sample, where others are started behind
            them; each is computed by the batch after its own.
        num_cached_tokens: computed tokens that the prefix cache gave when the sequence was first scheduled.
        block_table: physical block of each `block_size` tokens, in order.
        host_block_table: host blocks that hold the computed tokens of a swapped sequence; else empty.
        num_blocks_by_shard: leading entries of `block_table` that lie on each shard of the cache, as far as the block
            manager has counted them; empty before it has.
        block_hashes: hash of each full block of `token_ids`, computed on demand by the block manager.
        num_published_blocks: leading blocks that the prefix cache gave or was offered.
        prompt_logprobs: log probabilities of prompt tokens 1.., as far as they are computed, if asked for.
        ngrams: the n-gram index that drafts come from; None until the first draft.
        num_given_tokens: tokens that it was submitted with: the prompt, and output of another worker.
        wants_best: see `SamplingParams`; copied here because it is read twice for each token.
        cache_salt: see `GenerationRequest`.
    """

    request_id: str
    token_ids: list[int]
    num_prompt_tokens: int
    sampling: SamplingParams
    arrival_s: float
    status: SequenceStatus = SequenceStatus.WAITING
    num_computed_tokens: int = 0
    num_pending_tokens: int = 0
    num_cached_tokens: int = 0
    block_table: "array[int]" = field(default_factory=partial(array, "i"))
    host_block_table: list[int] = field(default_factory=list)
    num_blocks_by_shard: list[int] = field(default_factory=list)
    block_hashes: list[bytes] = field(default_factory=list)
    num_published_blocks: int = 0
    prompt_logprobs: list[TokenLogprobs] = field(default_factory=list)
    ngrams: NgramIndex | None = None
    cache_salt: str = ""
    num_given_tokens: int = field(init=False)
    wants_best: bool = field(init=False)

    def __post_init__(self) -> None:
        self.num_given_tokens = len(self.token_ids)
        self.wants_best = self.sampling.wants_best

    @classmethod
    def from_request(cls, request: GenerationRequest, *, arrival_s: float) -> "Sequence":
        return cls(
            request_id=request.request_id,
            token_ids=[*request.prompt_token_ids, *request.output_token_ids],
            num_prompt_tokens=len(request.prompt_token_ids),
            sampling=request.sampling,
            arrival_s=arrival_s,
            cache_salt=request.cache_salt,
        )

    def copy(self) -> "Sequence":
        """A beam's twin, without blocks."""
        return Sequence(
            request_id=self.request_id,
            token_ids=list(self.token_ids),
            num_prompt_tokens=self.num_prompt_tokens,
            sampling=self.sampling,
            arrival_s=self.arrival_s,
            status=self.status,
            num_cached_tokens=self.num_cached_tokens,
            prompt_logprobs=self.prompt_logprobs,
            cache_salt=self.cache_salt,
        )

    def __len__(self) -> int:
        return len(self.token_ids)

    @property
    def num_output_tokens(self) -> int:
        return len(self.token_ids) - self.num_prompt_tokens

    @property
    def output_token_ids(self) -> TokenList[int]:
        return self.token_ids[self.num_prompt_tokens :]

    @property
    def num_uncomputed_tokens(self) -> int:
        return len(self.token_ids) + self.num_pending_tokens - self.num_computed_tokens

    @property
    def owes_prompt_logprobs(self) -> bool:
        """Whether logits of prompt tokens are still to be computed, so that their KV must not come from a cache."""
        return self.sampling.num_prompt_logprobs is not None and len(self.prompt_logprobs) < self.num_prompt_tokens - 1

    def keep_prompt_logprobs(self, entries: tuple[TokenLogprobs, ...], *, start: int) -> None:
        """Keeps those of a scheduled sequence that starts at token `start`; after a preemption some are known
        already."""
        num_known = max(0, len(self.prompt_logprobs) - start)
        self.prompt_logprobs.extend(entries[num_known:])
