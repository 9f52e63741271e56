"""A client's request, tokenised and checked, and the pieces of its answer."""

from collections.abc import Sequence
from dataclasses import dataclass, replace

from headway.core.errors import InvalidArgumentError
from headway.core.request import FinishReason, GenerationRequest, SamplingParams, TokenLogprobs
from headway.core.slo import Slo
from headway.gateway.answer_journal import AnswerJournal
from headway.gateway.model import ServedModel
from headway.gateway.options import Options
from headway.gateway.tenants import SALT_END

_SEED_RANGE = 2**64
_MAX_PROMPT_LOGPROBS = 1 << 20


@dataclass(frozen=True, slots=True, kw_only=True)
class Prompt:
    """One prompt of a job. `field` is its name in the client's request, `text` its text (None for a prompt of token
    ids).
    """

    token_ids: tuple[int, ...]
    field: str
    text: str | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Arrival:
    """The facts about a request that do not come from its body.

    Attributes:
        at_s: when the request arrived, in the monotonic clock's seconds.
        slo: the client's own, or its tenant's; what they leave open is the model's.
        priority: the lowest goes first where requests wait by priority.
        tenant: who asks; empty for nobody in particular.
        tenant_weight: the tenant's part beside other tenants.
        cache_salt: the tenant's, in front of the request's own.
        traceparent: W3C context of the request's span; empty when tracing is off.
        journal: of a stream that can be taken up again; None for all else.
    """

    at_s: float
    slo: Slo
    priority: int = 0
    tenant: str = ""
    tenant_weight: float = 1.0
    cache_salt: str = ""
    traceparent: str = ""
    journal: AnswerJournal | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class Job:
    """A request to generate from prompts of one model.

    Attributes:
        request_id: unique over all gateways.
        samplings: of each prompt's first sample.
        arrived_s: by the monotonic clock.
        cache_salt: as in `GenerationRequest`.
        traceparent: W3C context of the request's span; empty when tracing is off.
        journal: as the arrival's.
    """

    request_id: str
    model: ServedModel
    prompts: tuple[Prompt, ...]
    samplings: tuple[SamplingParams, ...]
    options: Options
    slo: Slo
    arrived_s: float
    priority: int = 0
    tenant: str = ""
    tenant_weight: float = 1.0
    cache_salt: str = ""
    traceparent: str = ""
    journal: AnswerJournal | None = None

    @property
    def answer_id(self) -> str:
        """That the client knows the answer by."""
        return self.request_id if self.journal is None else self.journal.record.answer_id

    @property
    def num_sequences(self) -> int:
        """The number of sequences that the client gets."""
        return len(self.prompts) * self.options.n

    @property
    def num_parallel(self) -> int:
        """Returns the sequences that workers run for it."""
        return len(self.prompts) * self.options.num_parallel

    @property
    def num_prompt_tokens(self) -> int:
        return sum(len(prompt.token_ids) for prompt in self.prompts)

    def prompt_of(self, index: int) -> Prompt:
        """Returns the prompt of a sequence that the client gets, by the sequence's index."""
        return self.prompts[index // self.options.n]

    def requests(self, prompt_index: int) -> list[GenerationRequest]:
        """The samples of one prompt, or its search; the job's count their seeds and ids up from prompt to prompt."""
        num_samples = self.options.num_samples
        has_many = len(self.prompts) * num_samples > 1
        sampling = self.samplings[prompt_index]
        indices = range(prompt_index * num_samples, (prompt_index + 1) * num_samples)
        return [
            GenerationRequest(
                request_id=f"{self.request_id}/{index}" if has_many else self.request_id,
                model=self.model.worker_model,
                prompt_token_ids=self.prompts[prompt_index].token_ids,
                sampling=replace(sampling, seed=(sampling.seed + index) % _SEED_RANGE) if index else sampling,
                cache_salt=self.cache_salt,
                priority=self.priority,
                tenant=self.tenant,
                tenant_weight=self.tenant_weight,
                adapter=self.model.adapter,
            )
            for index in indices
        ]


@dataclass(slots=True, kw_only=True)
class Delta:
    """New output of one sequence. One is made for each token, so it is not frozen: that would take three times as long.

    Attributes:
        index: the sequence's index in the job: prompt by prompt, n sequences each.
        text: new text; may be empty while a character or a stop string is incomplete.
        logprobs: log probabilities of the new tokens that stand for text, if asked for.
        text_offsets: for each of those tokens, the characters of output before it.
        prompt_logprobs: log probabilities of prompt tokens 1.., given once, if asked for.
        finish_reason: why the sequence ended; set on its last delta only.
        num_cached_tokens: prompt tokens that a prefix cache gave; set on the first delta.
        num_dropped_tokens: tokens generated for sequences that the client does not get.
        score: the mean log probability of the sequence's tokens; on its last delta, where they were computed.
    """

    index: int
    text: str = ""
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    text_offsets: tuple[int, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    num_cached_tokens: int = 0
    num_dropped_tokens: int = 0
    score: float | None = None


@dataclass(slots=True)
class Usage:
    """Tokens of a job, counted as its deltas come."""

    num_prompt_tokens: int
    num_completion_tokens: int = 0
    num_cached_tokens: int = 0

    def count(self, deltas: Sequence[Delta], *, n: int) -> None:
        """`n` sequences share a prompt; the others find in the cache what the first one put there."""
        for delta in deltas:
            self.num_completion_tokens += len(delta.token_ids) + delta.num_dropped_tokens
            if delta.index % n == 0:
                self.num_cached_tokens += delta.num_cached_tokens


def check_num_sequences(num_sequences: int, *, max_sequences: int, field: str) -> None:
    """InvalidArgumentError where one request asks for more than this gateway lets it."""
    if num_sequences > max_sequences:
        raise InvalidArgumentError(
            f"The request asks for {num_sequences} sequences; one request may ask for {max_sequences}.",
            hint="Send fewer prompts at once, or a smaller n, best_of or beam_width.",
            field=field,
        )


def make_job(
    *,
    request_id: str,
    model: ServedModel,
    prompts: Sequence[Prompt],
    options: Options,
    arrival: Arrival,
    random_seed: int,
    bad_token_ids: tuple[tuple[int, ...], ...] = (),
) -> Job:
    """Checks lengths; the options have been checked.

    Args:
        bad_token_ids: the options' bad words as tokens.

    Raises:
        ContextLengthError: naming the prompt, or max_tokens, that does not fit the model.
        InvalidArgumentError: the log probabilities of the prompts are too many for one answer.
    """
    _check_prompt_logprobs(prompts, options)
    lengths = [
        options.max_output_tokens(len(prompt.token_ids), max_model_len=model.max_model_len, field=prompt.field)
        for prompt in prompts
    ]
    return Job(
        request_id=request_id,
        model=model,
        prompts=tuple(prompts),
        samplings=tuple(
            options.sampling(
                max_tokens=length,
                vocab_size=model.spec.vocab_size,
                random_seed=random_seed,
                bad_token_ids=bad_token_ids,
            )
            for length in lengths
        ),
        options=options,
        slo=arrival.slo.over(model.slo),
        priority=arrival.priority,
        tenant=arrival.tenant,
        tenant_weight=arrival.tenant_weight,
        cache_salt=_adapter_salt(model) + arrival.cache_salt + options.cache_salt,
        arrived_s=arrival.at_s,
        traceparent=arrival.traceparent,
        journal=arrival.journal,
    )


def _check_prompt_logprobs(prompts: Sequence[Prompt], options: Options) -> None:
    """Each choice of the answer has them all, and they come from the worker in one step with those of others."""
    if options.num_prompt_logprobs is None:
        return
    num_tokens = options.num_parallel * sum(len(prompt.token_ids) for prompt in prompts)
    if (num := num_tokens * (1 + options.num_prompt_logprobs)) > _MAX_PROMPT_LOGPROBS:
        raise InvalidArgumentError(
            f"The request asks for {num} log probabilities of its prompts, in all choices; one may ask for "
            f"{_MAX_PROMPT_LOGPROBS}.",
            hint="Ask for fewer choices, a smaller prompt_logprobs, or send a shorter prompt.",
            field="prompt_logprobs",
        )


def _adapter_salt(model: ServedModel) -> str:
    """What begins the salt of an adapter's requests: what it computes of a prompt is its own."""
    return "" if model.adapter is None else f"{model.adapter.key}{SALT_END}"
