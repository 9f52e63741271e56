"""What clients may ask for, over HTTP and gRPC alike, and the checks that it passes."""

import math
from dataclasses import dataclass

from headway.core.errors import InvalidArgumentError
from headway.core.request import SamplingParams
from headway.gateway.errors import ContextLengthError

DEFAULT_COMPLETION_TOKENS = 16
MAX_LOGPROBS = 20
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_SEQUENCES = 128
_SEED_RANGE = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Names, meanings and defaults are those of the OpenAI API; top_k and what follows it are common extensions.

    Attributes:
        max_tokens: None for `default_max_tokens`, cut to what fits the model.
        default_max_tokens: None for all that fits.
        num_logprobs, num_prompt_logprobs: as in `SamplingParams`.
        prompt_only: the prompt's own log probabilities are wanted, and no output.
    """

    max_tokens: int | None = None
    default_max_tokens: int | None = None
    n: int = 1
    stop: tuple[str, ...] = ()
    temperature: float = 1.0
    top_p: float = 1.0
    presence_penalty: float = 0.0
    frequency_penalty: float = 0.0
    seed: int | None = None
    num_logprobs: int | None = None
    num_prompt_logprobs: int | None = None
    top_k: int = 0
    min_p: float = 0.0
    repetition_penalty: float = 1.0
    min_tokens: int = 0
    ignore_eos: bool = False
    stop_token_ids: tuple[int, ...] = ()
    prompt_only: bool = False

    def check(self, *, vocab_size: int) -> None:
        """Raises InvalidArgumentError naming the first option that is out of range."""
        _check_range("n", self.n, 1, MAX_SEQUENCES)
        _check_range("temperature", self.temperature, 0.0, 2.0)
        _check_range("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise InvalidArgumentError("top_p is 0; it must be above 0.", hint="Use temperature 0.", field="top_p")
        _check_range("min_p", self.min_p, 0.0, 1.0)
        _check_range("top_k", self.top_k, -1, None)
        _check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        _check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        if not 0 < self.repetition_penalty < math.inf:
            raise InvalidArgumentError(
                f"repetition_penalty is {self.repetition_penalty:g}; it must be above 0, and finite.",
                hint="1 is no penalty.",
                field="repetition_penalty",
            )
        if not self.prompt_only:
            _check_range("max_tokens", self.max_tokens, 1, None)
        _check_range("logprobs", self.num_logprobs, 0, MAX_LOGPROBS)
        self._check_stops(vocab_size)

    def _check_stops(self, vocab_size: int) -> None:
        _check_range("stop", len(self.stop), 0, MAX_STOPS, what="the number of stop strings")
        for i, stop in enumerate(self.stop):
            _check_range(f"stop[{i}]", len(stop), 1, MAX_STOP_CHARS, what="the length of a stop string")
        _check_range("stop_token_ids", len(self.stop_token_ids), 0, MAX_STOPS, what="the number of stop tokens")
        for i, token_id in enumerate(self.stop_token_ids):
            _check_range(f"stop_token_ids[{i}]", token_id, 0, vocab_size - 1)

    def sampling(self, *, max_tokens: int, vocab_size: int, random_seed: int) -> SamplingParams:
        """Of the request's first sequence; `random_seed` is taken where the client gave none."""
        _check_range("min_tokens", self.min_tokens, 0, max_tokens)
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature,
            top_k=min(max(self.top_k, 0), vocab_size),  # -1 is another name for "all"
            top_p=self.top_p,
            min_p=self.min_p,
            presence_penalty=self.presence_penalty,
            frequency_penalty=self.frequency_penalty,
            repetition_penalty=self.repetition_penalty,
            seed=(random_seed if self.seed is None else self.seed) % _SEED_RANGE,
            stop_token_ids=self.stop_token_ids,
            ignore_eos=self.ignore_eos,
            min_tokens=self.min_tokens,
            num_logprobs=self.num_logprobs,
            num_prompt_logprobs=self.num_prompt_logprobs,
        )

    def max_output_tokens(self, num_prompt_tokens: int, *, max_model_len: int, field: str) -> int:
        """Output tokens to generate at most behind a prompt.

        Raises:
            ContextLengthError: prompt and output do not fit the model; `field` names the prompt.
        """
        num_free_tokens = max_model_len - num_prompt_tokens
        if num_free_tokens < 1:
            raise ContextLengthError(
                f"This model's context holds {max_model_len} tokens, the output's included; the prompt alone has "
                f"{num_prompt_tokens}.",
                hint=f"Shorten the prompt to {max_model_len - 1} tokens or fewer.",
                field=field,
            )
        if self.prompt_only:
            return 1
        if self.max_tokens is None:
            return min(self.default_max_tokens or num_free_tokens, num_free_tokens)
        if self.max_tokens > num_free_tokens:
            raise ContextLengthError(
                f"This model's context holds {max_model_len} tokens; the prompt has {num_prompt_tokens} and max_tokens "
                f"asks for {self.max_tokens} more.",
                hint=f"Shorten the prompt, or set max_tokens to {num_free_tokens} or less.",
                field="max_tokens",
            )
        return self.max_tokens


def _check_range(
    field: str, value: float | None, low: float | None, high: float | None, *, what: str | None = None
) -> None:
    if value is None:
        return
    if (low is None or value >= low) and (high is None or value <= high):
        return
    bounds = f"at least {low:g}" if high is None else f"between {low:g} and {high:g}"
    raise InvalidArgumentError(f"{what or field} is {value:g}; it must be {bounds}.", field=field)
