"""The generation options that clients may set, over HTTP and gRPC alike, and their checks."""

from dataclasses import dataclass, field

from headway.core.errors import InvalidArgumentError
from headway.core.request import GREEDY_TEMPERATURE, BeamSearch, EarlyStopping, SamplingParams
from headway.gateway.bounds import check_range
from headway.gateway.constraint import Constraints
from headway.gateway.errors import ContextLengthError
from headway.gateway.tenants import SALT_END

DEFAULT_COMPLETION_TOKENS = 16
MAX_LOGPROBS = 20
_MIN_REPETITION_PENALTY = 1e-6
MAX_STOPS = 16
MAX_STOP_CHARS = 256
MAX_SEQUENCES = 128
MAX_BEST_OF = 20
MAX_BEAM_WIDTH = 16
MAX_SALT_CHARS = 1024
_MAX_LENGTH_PENALTY = 16.0
_SEED_RANGE = 2**64


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """Names, meanings and defaults are those of the OpenAI API; top_k and what follows it are common extensions.

    Attributes:
        max_tokens: None for `default_max_tokens`, cut to what fits the model.
        default_max_tokens: None for all that fits.
        max_tokens_limit: of the model, whatever a request asks for; None for none.
        num_logprobs, num_prompt_logprobs: as in `SamplingParams`.
        prompt_only: the prompt's own log probabilities are wanted, and no output.
        best_of: samples to choose the n best from; None for n.
        beam_width: None to sample.
        length_penalty, early_stopping: of a beam search, as in transformers.
        constraints: on the tokens of the output.
        skip_special_tokens: whether special tokens leave no trace in the text.
        include_stop_str_in_output: whether the text ends with the stop string, or the stop token, that ended it.
        cache_salt: as in `GenerationRequest`.
    """

    max_tokens: int | None = None
    default_max_tokens: int | None = None
    max_tokens_limit: int | None = None
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
    best_of: int | None = None
    beam_width: int | None = None
    length_penalty: float = 1.0
    early_stopping: str = EarlyStopping.HEURISTIC.value
    constraints: Constraints = field(default_factory=Constraints)
    skip_special_tokens: bool = True
    include_stop_str_in_output: bool = False
    cache_salt: str = ""

    @property
    def num_samples(self) -> int:
        """Requests that a worker gets for one prompt; a beam search is one."""
        return 1 if self.beam_width is not None else self.best_of or self.n

    @property
    def num_parallel(self) -> int:
        """Sequences that a worker runs side by side for one prompt."""
        return self.beam_width or self.num_samples

    @property
    def selects(self) -> bool:
        """Whether more samples are generated than the client gets."""
        return self.num_samples > self.n

    def check(self, *, vocab_size: int) -> None:
        """Raises InvalidArgumentError naming the first option that is out of range."""
        check_range("n", self.n, 1, MAX_SEQUENCES)
        check_range("temperature", self.temperature, 0.0, 2.0)
        check_range("top_p", self.top_p, 0.0, 1.0)
        if self.top_p == 0:
            raise InvalidArgumentError("top_p is 0; it must be above 0.", hint="Use temperature 0.", field="top_p")
        check_range("min_p", self.min_p, 0.0, 1.0)
        check_range("top_k", self.top_k, -1, None)
        check_range("presence_penalty", self.presence_penalty, -2.0, 2.0)
        check_range("frequency_penalty", self.frequency_penalty, -2.0, 2.0)
        # Logits are divided by it, and stay numbers that a float32 holds.
        check_range("repetition_penalty", self.repetition_penalty, _MIN_REPETITION_PENALTY, 1 / _MIN_REPETITION_PENALTY)
        if not self.prompt_only:
            check_range("max_tokens", self.max_tokens, 1, None)
        check_range("logprobs", self.num_logprobs, 0, MAX_LOGPROBS)
        check_range("prompt_logprobs", self.num_prompt_logprobs, 0, MAX_LOGPROBS)
        check_range("cache_salt", len(self.cache_salt), 0, MAX_SALT_CHARS, what="the length of cache_salt")
        if SALT_END in self.cache_salt:
            raise InvalidArgumentError(
                "cache_salt holds a NUL character.", hint="Use any other characters.", field="cache_salt"
            )
        self._check_stops(vocab_size)
        self.constraints.check(vocab_size=vocab_size)
        if self.constraints.guide is not None:
            self._check_guided()
        if self.beam_width is None:
            self._check_selection()
        else:
            self._check_beam(self.beam_width)

    def _check_selection(self) -> None:
        check_range("best_of", self.best_of, self.n, max(self.n, MAX_BEST_OF))
        if self.selects and self.prompt_only:
            raise InvalidArgumentError("best_of asks for output, and max_tokens 0 for none.", field="best_of")
        if self.length_penalty != 1.0 or self.early_stopping != EarlyStopping.HEURISTIC:
            field = "early_stopping" if self.length_penalty == 1.0 else "length_penalty"
            raise InvalidArgumentError(
                f"{field} is an option of beam search.", hint="Set beam_width, or leave it out.", field=field
            )

    def _check_beam(self, width: int) -> None:
        check_range("beam_width", width, 2, MAX_BEAM_WIDTH)
        check_range("n", self.n, 1, width)
        check_range("best_of", self.best_of, width, width)
        check_range("length_penalty", self.length_penalty, -_MAX_LENGTH_PENALTY, _MAX_LENGTH_PENALTY)
        if self.early_stopping not in list(EarlyStopping):
            raise InvalidArgumentError(
                f"early_stopping is '{self.early_stopping[:100]}'; it must be true, false or never.",
                field="early_stopping",
            )
        # 1 is the API's default: a client that leaves the temperature out has not asked for samples.
        has_samples = {
            "temperature": self.temperature >= GREEDY_TEMPERATURE and self.temperature != 1.0,
            "top_p": self.top_p != 1.0,
            "top_k": self.top_k > 0,
            "min_p": self.min_p != 0.0,
        }
        for name, is_set in has_samples.items():
            if is_set:
                raise InvalidArgumentError(
                    f"{name} is {getattr(self, name):g}, but a beam search draws no samples.",
                    hint="Leave it out, or leave beam search out.",
                    field=name,
                )
        if self.num_logprobs is not None or self.prompt_only:
            raise InvalidArgumentError(
                "A beam search gives no log probabilities.", hint="Leave logprobs out.", field="logprobs"
            )
        if self.num_prompt_logprobs is not None:
            raise InvalidArgumentError(
                "A beam search gives no log probabilities.", hint="Leave prompt_logprobs out.", field="prompt_logprobs"
            )

    def _check_guided(self) -> None:
        """Refuses options that a guide excludes: the guide decides where the output ends, and a beam search would
        follow one path through its language.
        """
        excluded = {
            "ignore_eos": self.ignore_eos,
            "min_tokens": self.min_tokens > 0,
            "beam_width": self.beam_width is not None,
        }
        for name, is_set in excluded.items():
            if is_set:
                raise InvalidArgumentError(
                    f"{name} and {self.constraints.guide_field} exclude each other.",
                    hint="Leave one of them out.",
                    field=name,
                )

    def _check_stops(self, vocab_size: int) -> None:
        check_range("stop", len(self.stop), 0, MAX_STOPS, what="the number of stop strings")
        for i, stop in enumerate(self.stop):
            check_range(f"stop[{i}]", len(stop), 1, MAX_STOP_CHARS, what="the length of a stop string")
        check_range("stop_token_ids", len(self.stop_token_ids), 0, MAX_STOPS, what="the number of stop tokens")
        for i, token_id in enumerate(self.stop_token_ids):
            check_range(f"stop_token_ids[{i}]", token_id, 0, vocab_size - 1)

    def sampling(
        self,
        *,
        max_tokens: int,
        vocab_size: int,
        random_seed: int,
        bad_token_ids: tuple[tuple[int, ...], ...] = (),
    ) -> SamplingParams:
        """Returns the sampling parameters of the request's first sequence; `random_seed` is its seed where the client
        gave none.
        """
        check_range("min_tokens", self.min_tokens, 0, max_tokens)
        return SamplingParams(
            max_tokens=max_tokens,
            temperature=self.temperature if self.temperature >= GREEDY_TEMPERATURE else 0.0,
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
            num_logprobs=(self.num_logprobs or 0) if self.selects else self.num_logprobs,
            num_prompt_logprobs=self.num_prompt_logprobs,
            logit_bias=self.constraints.logit_bias,
            bad_token_ids=bad_token_ids,
            guide=self.constraints.guide,
            beam=None if self.beam_width is None else self._beam(self.beam_width),
        )

    def _beam(self, width: int) -> BeamSearch:
        return BeamSearch(
            width=width,
            num_hypotheses=self.n,
            length_penalty=self.length_penalty,
            early_stopping=EarlyStopping(self.early_stopping),
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
        limit = min(num_free_tokens, self.max_tokens_limit or num_free_tokens)
        if self.max_tokens is None:
            return min(self.default_max_tokens or limit, limit)
        if self.max_tokens > num_free_tokens:
            raise ContextLengthError(
                f"This model's context holds {max_model_len} tokens; the prompt has {num_prompt_tokens} and max_tokens "
                f"asks for {self.max_tokens} more.",
                hint=f"Shorten the prompt, or set max_tokens to {num_free_tokens} or less.",
                field="max_tokens",
            )
        return min(self.max_tokens, limit)
