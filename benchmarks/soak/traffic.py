"""Random requests of every kind that the engine knows, from a seed."""

import random
from collections.abc import Callable
from dataclasses import dataclass, replace
from enum import StrEnum

from headway.core.request import BeamSearch, EarlyStopping, GenerationRequest, Guide, GuideKind, SamplingParams

FIRST_TOKEN = 10
NUM_PREFIXES = 4
PREFIX_TOKENS = (20, 120)
TAIL_TOKENS = (1, 60)
OUTPUT_TOKENS = (1, 80)
SHARE_WITH_PREFIX = 0.5
GUIDES = (
    Guide(GuideKind.REGEX, "[0-9]{3,20}"),
    Guide(GuideKind.CHOICE, '["express", "local", "through train"]'),
    Guide(GuideKind.JSON_SCHEMA, '{"type": "object", "properties": {"stop": {"enum": [1, 2]}}, "required": ["stop"]}'),
)


class Kind(StrEnum):
    """How a request is decoded."""

    GREEDY = "greedy"
    SAMPLED = "sampled"
    PENALISED = "penalised"
    CONSTRAINED = "biased, with bad words"
    SCORED = "with log probabilities"
    GUIDED = "guided"
    BEAM = "beam search"


@dataclass(frozen=True, slots=True)
class Group:
    """The sequences of one request."""

    kind: Kind
    requests: tuple[GenerationRequest, ...]


class Traffic:
    """Draws one group after the other. Half of them start with one of a few prefixes.

    Attributes:
        prefixes: tokens that prompts start with.
    """

    def __init__(self, *, vocab_size: int, seed: int) -> None:
        self._draw = random.Random(seed)
        self._vocab_size = vocab_size
        self._num_groups = 0
        self.prefixes = [self._tokens(*PREFIX_TOKENS) for _ in range(NUM_PREFIXES)]
        self._makers: dict[Kind, Callable[[], SamplingParams]] = {
            Kind.GREEDY: lambda: SamplingParams(temperature=0.0),
            Kind.SAMPLED: self._sampled,
            Kind.PENALISED: self._penalised,
            Kind.CONSTRAINED: self._constrained,
            Kind.SCORED: self._scored,
            Kind.GUIDED: lambda: replace(self._sampled(), guide=self._draw.choice(GUIDES)),
            Kind.BEAM: self._beam,
        }

    def group(self) -> Group:
        """The next request; all but beam searches have one to four samples."""
        kind = self._draw.choice(list(Kind))
        sampling = replace(self._makers[kind](), max_tokens=self._draw.randint(*OUTPUT_TOKENS))
        prefix = self._draw.choice(self.prefixes) if self._draw.random() < SHARE_WITH_PREFIX else ()
        prompt = prefix + self._tokens(*TAIL_TOKENS)
        self._num_groups += 1
        num_samples = 1 if kind is Kind.BEAM else self._draw.randint(1, 4)
        return Group(
            kind,
            tuple(
                GenerationRequest(
                    request_id=f"{self._num_groups}-{index}",
                    model="soak",
                    prompt_token_ids=prompt,
                    sampling=replace(sampling, seed=self._draw.getrandbits(32)),
                )
                for index in range(num_samples)
            ),
        )

    def _sampled(self) -> SamplingParams:
        return SamplingParams(
            temperature=self._draw.uniform(0.5, 1.5),
            top_k=self._draw.choice((0, 5, 50)),
            top_p=self._draw.choice((1.0, 0.9)),
            min_p=self._draw.choice((0.0, 0.05)),
        )

    def _penalised(self) -> SamplingParams:
        return replace(
            self._sampled(),
            presence_penalty=self._draw.uniform(-1, 1),
            frequency_penalty=self._draw.uniform(-1, 1),
            repetition_penalty=self._draw.uniform(0.8, 1.3),
        )

    def _constrained(self) -> SamplingParams:
        bias = tuple((token, self._draw.uniform(-5, 5)) for token in set(self._tokens(1, 5)))
        return replace(
            self._sampled(),
            logit_bias=bias,
            bad_token_ids=(self._tokens(1, 1), self._tokens(2, 2)),
            stop_token_ids=self._tokens(1, 3),
            min_tokens=self._draw.choice((0, 4)),
        )

    def _scored(self) -> SamplingParams:
        return replace(
            self._sampled(),
            num_logprobs=self._draw.choice((0, 3)),
            num_prompt_logprobs=self._draw.choice((None, 0, 2)),
        )

    def _beam(self) -> SamplingParams:
        width = self._draw.randint(2, 4)
        search = BeamSearch(
            width=width,
            num_hypotheses=self._draw.randint(1, width),
            length_penalty=self._draw.choice((0.5, 1.0, 2.0)),
            early_stopping=self._draw.choice(list(EarlyStopping)),
        )
        return SamplingParams(beam=search)

    def _tokens(self, at_least: int, at_most: int) -> tuple[int, ...]:
        length = self._draw.randint(at_least, at_most)
        return tuple(self._draw.randrange(FIRST_TOKEN, self._vocab_size) for _ in range(length))
