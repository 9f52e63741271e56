"""A generation request and what comes back for it."""

import math
from dataclasses import dataclass
from enum import StrEnum

from headway.core.adapter import Adapter

# Draws at a lower temperature take the best token, or divide by zero in float32; vLLM draws the line here, too.
GREEDY_TEMPERATURE = 1e-5


class FinishReason(StrEnum):
    """The reason why a sequence ended."""

    STOP = "stop"  # end-of-sequence token or a stop token id
    LENGTH = "length"  # max_tokens or the model's maximum length
    CANCELLED = "cancelled"
    ERROR = "error"


class GuideKind(StrEnum):
    """The kind of a guide's text."""

    JSON_SCHEMA = "json_schema"
    JSON_OBJECT = "json_object"  # any object; the text is empty
    REGEX = "regex"
    CHOICE = "choice"  # a JSON list of strings
    GRAMMAR = "grammar"  # Lark


@dataclass(frozen=True, slots=True)
class Guide:
    """A language that the output must belong to. The gateway checks its text; the worker compiles it, and refuses what
    is too much."""

    kind: GuideKind
    text: str = ""


class EarlyStopping(StrEnum):
    """The rule for when a beam search is done, as in transformers' `early_stopping`."""

    FIRST = "true"  # as soon as `width` hypotheses have ended
    HEURISTIC = "false"  # when the best running beam can hardly beat the worst ended one
    NEVER = "never"  # when it cannot beat it


@dataclass(frozen=True, slots=True, kw_only=True)
class BeamSearch:
    """Beam search (dissertation 5.4.4) in place of sampling.

    Attributes:
        width: the number of beams, >= 2.
        num_hypotheses: how many of the best hypotheses are returned, <= width.
        length_penalty: the exponent of the length that a hypothesis' log probability is divided by.
    """

    width: int
    num_hypotheses: int = 1
    length_penalty: float = 1.0
    early_stopping: EarlyStopping = EarlyStopping.HEURISTIC


@dataclass(frozen=True, slots=True, kw_only=True)
class SamplingParams:
    """The sampling parameters of one sequence. Ranges are checked where a request enters, in the gateway.

    Attributes:
        max_tokens: the most output tokens, >= 1.
        temperature: below `GREEDY_TEMPERATURE`, 0 among them, is greedy.
        top_k: keep the k most probable tokens; 0 keeps all.
        top_p: keep the smallest set of tokens whose probability reaches top_p, in (0, 1].
        min_p: drop tokens less probable than min_p times the most probable one, in [0, 1].
        presence_penalty, frequency_penalty: in [-2, 2], subtracted from logits of tokens already in the output.
        repetition_penalty: > 0, divides (multiplies if negative) logits of tokens in prompt or output.
        seed: the random stream; a draw depends only on (seed, output position), so a resumed or preempted
            sequence draws the same numbers again.
        stop_token_ids: end the sequence besides the model's own end-of-sequence ids.
        ignore_eos: do not end at the model's end-of-sequence ids.
        min_tokens: the output tokens before any stop token may be sampled.
        num_logprobs: None for none; 0 for the sampled token only; n for the n best besides.
        num_prompt_logprobs: the same for prompt tokens (all but the first).
        logit_bias: (token id, bias) added to the logits.
        bad_token_ids: token sequences that must not appear in the output.
        guide: a language that the output must belong to.
        beam: beam search; then temperature, seed and truncation are not used.
    """

    max_tokens: int = 16
    temperature: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    repetition_penalty: float = 1.0
    seed: int = 0
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False
    min_tokens: int = 0
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    logit_bias: tuple[tuple[int, float], ...] = ()
    bad_token_ids: tuple[tuple[int, ...], ...] = ()
    guide: Guide | None = None
    beam: BeamSearch | None = None

    @property
    def is_greedy(self) -> bool:
        """Whether each token is the best one instead of a drawn one."""
        return self.temperature < GREEDY_TEMPERATURE

    @property
    def wants_best(self) -> bool:
        """Whether each token is the one whose logit is largest as the network gives it, and nothing else is asked."""
        return (
            self.is_greedy
            and self.num_logprobs is None
            and self.beam is None
            and self.guide is None
            and not self.min_tokens
            and not self.logit_bias
            and not self.bad_token_ids
            and not self.needs_history
        )

    @property
    def needs_history(self) -> bool:
        """Whether sampling reads the tokens generated so far."""
        return self.presence_penalty != 0.0 or self.frequency_penalty != 0.0 or self.repetition_penalty != 1.0

    @property
    def needs_last_token(self) -> bool:
        """Whether no token can be chosen before the host knows the one before it."""
        return self.needs_history or bool(self.bad_token_ids) or self.guide is not None or self.beam is not None


@dataclass(frozen=True, slots=True, kw_only=True)
class GenerationRequest:
    """One sequence to generate, tokenised.

    Attributes:
        request_id: unique; appears in every log line.
        model: served model name.
        prompt_token_ids: at least one token.
        output_token_ids: tokens that another worker already generated for this sequence (a resumed stream);
            generation goes on after them, and positions, penalties and max_tokens count them.
        sampling: how to sample.
        cache_salt: parts the prefix cache: only requests of one salt share blocks; empty for the common part.
        priority: the lowest is first, where the queue goes by priorities.
        slack_s: from its submission on, for how long it may wait before it misses an objective; infinite for none.
        tenant: who asks; empty for nobody in particular.
        tenant_weight: the tenant's part beside other tenants.
        adapter: that changes the model; None for none.
    """

    request_id: str
    model: str
    prompt_token_ids: tuple[int, ...]
    sampling: SamplingParams
    output_token_ids: tuple[int, ...] = ()
    cache_salt: str = ""
    priority: int = 0
    slack_s: float = math.inf
    tenant: str = ""
    tenant_weight: float = 1.0
    adapter: Adapter | None = None


@dataclass(frozen=True, slots=True)
class TokenLogprobs:
    """Natural-log probabilities at one position (softmax of the raw logits, before temperature and penalties).

    Attributes:
        token_id, logprob: the token that stands at this position.
        rank: 1-based rank of that token among the vocabulary.
        top: (token id, logprob) of the most probable tokens, best first.
    """

    token_id: int
    logprob: float
    rank: int
    top: tuple[tuple[int, float], ...] = ()


@dataclass(frozen=True, slots=True)
class Hypothesis:
    """One result of a beam search.

    Attributes:
        token_ids: the output, its end-of-sequence token included.
        score: log probability of the output, divided by its length to the power of the length penalty.
    """

    token_ids: tuple[int, ...]
    score: float
    finish_reason: FinishReason


@dataclass(slots=True)
class SequenceOutput:
    """The output of one engine step for one sequence. One is made for each token on either side of a stream, so it is
    not frozen: that would take three times as long.

    Attributes:
        token_ids: new tokens, in order; empty when only the end is reported.
        logprobs: one entry per new token if asked for.
        prompt_logprobs: for prompt tokens 1.., once, with the first output.
        finish_reason: set on the last output only.
        stop_token_id: the token that ended the sequence, when finish_reason is STOP (it is in token_ids).
        num_cached_tokens: prompt tokens whose KV came from the prefix cache (first output only).
        error: message when finish_reason is ERROR.
        hypotheses: a beam search's results, best first, in its only output; `token_ids` is empty then.
    """

    request_id: str
    token_ids: tuple[int, ...] = ()
    logprobs: tuple[TokenLogprobs, ...] = ()
    prompt_logprobs: tuple[TokenLogprobs, ...] = ()
    finish_reason: FinishReason | None = None
    stop_token_id: int | None = None
    num_cached_tokens: int = 0
    error: str = ""
    hypotheses: tuple[Hypothesis, ...] = ()

    @property
    def is_plain(self) -> bool:
        """Whether it is a token and nothing else; nearly all are."""
        return (
            len(self.token_ids) == 1
            and self.finish_reason is None
            and not (self.logprobs or self.prompt_logprobs or self.num_cached_tokens)
        )
