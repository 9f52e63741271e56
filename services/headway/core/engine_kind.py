"""The engines that can compute a model behind a worker, and what each of them declares that it can do.

Whatever asks for more than an engine's features is refused before it runs, with the feature's name: an engine never
gives other tokens in silence.
"""

from collections.abc import Mapping
from enum import StrEnum

from headway.core.errors import FailedPreconditionError, HeadwayError, InvalidArgumentError
from headway.core.request import GenerationRequest, SamplingParams


class EngineKind(StrEnum):
    """An engine, by the name that users give it."""

    HEADWAY = "headway"
    VLLM = "vllm"

    @classmethod
    def _missing_(cls, value: object) -> "EngineKind | None":
        return cls.HEADWAY if value == "" else None  # older processes and documents name none


class Feature(StrEnum):
    """What an engine may be able to do, besides generating tokens, sampling and a prefix cache."""

    GUIDED = "guided"
    BEAM_SEARCH = "beam_search"
    BAD_WORDS = "bad_words"
    LOGPROBS = "logprobs"
    PROMPT_LOGPROBS = "prompt_logprobs"
    RESUME_GREEDY = "resume_greedy"
    RESUME_SEEDED = "resume_seeded"
    RESUME_PENALTIES = "resume_penalties"
    RESUME_GUIDED = "resume_guided"
    BLOCK_EVENTS = "block_events"
    BLOCK_TABLES = "block_tables"
    BLOCK_TRANSFER = "block_transfer"
    PINS = "pins"
    GROUPS = "groups"
    HOST_CACHE = "host_cache"
    DRAFT_TOKENS = "draft_tokens"
    PREFILL_LIMIT = "prefill_limit"
    INT8 = "int8"
    ENCODERS = "encoders"
    MEASURED_STEPS = "measured_steps"


FEATURES: Mapping[EngineKind, frozenset[Feature]] = {
    EngineKind.HEADWAY: frozenset(Feature),
    EngineKind.VLLM: frozenset(
        {Feature.LOGPROBS, Feature.PROMPT_LOGPROBS, Feature.RESUME_GREEDY, Feature.BLOCK_EVENTS}
    ),
}
"""What each engine declares; the contract's tests hold it to that."""


def needs_of(sampling: SamplingParams) -> list[Feature]:
    """The features that a request with this sampling needs of its engine from its start."""
    needs = (
        (Feature.BEAM_SEARCH, sampling.beam is not None),
        (Feature.GUIDED, sampling.guide is not None),
        (Feature.BAD_WORDS, bool(sampling.bad_token_ids)),
        (Feature.LOGPROBS, sampling.num_logprobs is not None),
        (Feature.PROMPT_LOGPROBS, sampling.num_prompt_logprobs is not None),
    )
    return [feature for feature, is_needed in needs if is_needed]


def resumption_needs_of(sampling: SamplingParams) -> list[Feature]:
    """The features with which an engine gives the same tokens after those that another worker generated.

    The repetition penalty counts prompt and output alike, so it needs nothing of its own.
    """
    needs = (
        (Feature.RESUME_GUIDED, sampling.guide is not None),
        (Feature.RESUME_PENALTIES, sampling.presence_penalty != 0.0 or sampling.frequency_penalty != 0.0),
        (Feature.RESUME_GREEDY if sampling.is_greedy else Feature.RESUME_SEEDED, True),
    )
    return [feature for feature, is_needed in needs if is_needed]


def check_request(request: GenerationRequest, kind: EngineKind) -> None:
    """Refuses what the engine cannot do.

    Raises:
        InvalidArgumentError: the request asks for something that the engine lacks.
        FailedPreconditionError: it goes on after tokens of another worker, and the engine would go on otherwise.
    """
    for feature in needs_of(request.sampling):
        if feature not in FEATURES[kind]:
            raise InvalidArgumentError(
                f"The model '{request.model}' runs on {kind}, which lacks {feature}.",
                hint="Leave it out, or serve the model with --engine headway.",
                field=str(feature),
            )
    if not request.output_token_ids:
        return
    for feature in resumption_needs_of(request.sampling):
        if feature not in FEATURES[kind]:
            raise FailedPreconditionError(
                f"The worker of the request is gone, and {kind} cannot go on exactly where it stopped: it lacks "
                f"{feature}.",
                hint="Send the request again.",
            )


def lacks(kind: EngineKind, feature: Feature, *, model: str) -> HeadwayError:
    """The error for a command that needs a feature of a model's engine."""
    return FailedPreconditionError(
        f"The model '{model}' runs on {kind}, which lacks {feature}.",
        hint="Serve the model with --engine headway.",
    )
