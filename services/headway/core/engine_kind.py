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
    VLLM_SERVER = "vllm-server"

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
    TENSOR_PARALLEL = "tensor_parallel"
    GROUPS = "groups"
    HOST_CACHE = "host_cache"
    DRAFT_TOKENS = "draft_tokens"
    PREFILL_LIMIT = "prefill_limit"
    INT8 = "int8"
    ENCODERS = "encoders"
    LORA = "lora"
    MEASURED_STEPS = "measured_steps"


FEATURES: Mapping[EngineKind, frozenset[Feature]] = {
    EngineKind.HEADWAY: frozenset(Feature) - {Feature.LORA},
    EngineKind.VLLM: frozenset(
        {
            Feature.LOGPROBS,
            Feature.PROMPT_LOGPROBS,
            Feature.RESUME_GREEDY,
            Feature.BLOCK_EVENTS,
            Feature.TENSOR_PARALLEL,
            Feature.LORA,
        }
    ),
    EngineKind.VLLM_SERVER: frozenset({Feature.LOGPROBS, Feature.RESUME_GREEDY, Feature.BLOCK_EVENTS}),
}
"""What each engine declares; the contract's tests hold it to that."""

WORDS: Mapping[Feature, str] = {
    Feature.GUIDED: "answers guided by a JSON schema, regular expression, choice or grammar, and tool calls that use "
    "one",
    Feature.BEAM_SEARCH: "beam search",
    Feature.BAD_WORDS: "`bad_words`",
    Feature.LOGPROBS: "log probabilities of the answer",
    Feature.PROMPT_LOGPROBS: "log probabilities of the prompt",
    Feature.RESUME_GREEDY: "a greedy stream, also with a repetition penalty, goes on at another worker token for token",
    Feature.RESUME_SEEDED: "so does a sampled one",
    Feature.RESUME_PENALTIES: "so does one with presence or frequency penalties",
    Feature.RESUME_GUIDED: "so does a guided one",
    Feature.BLOCK_EVENTS: "the prefix index knows its cache: prompts that begin alike meet at one worker",
    Feature.BLOCK_TABLES: "`headway kv show REQUEST`",
    Feature.BLOCK_TRANSFER: "requests move with their blocks, prefixes are fetched from other workers, prefill and "
    "decode workers",
    Feature.PINS: "`headway prefix pin`",
    Feature.TENSOR_PARALLEL: "each layer is split over several devices: `--tp`",
    Feature.GROUPS: "several workers share a model: `--pp`, `--cp`, and `--tp` where it is theirs",
    Feature.HOST_CACHE: "swapping to host memory: `--swap-space`",
    Feature.DRAFT_TOKENS: "`--speculative-tokens`",
    Feature.PREFILL_LIMIT: "`--max-num-prefill-tokens`",
    Feature.INT8: "`--quantization int8`",
    Feature.ENCODERS: "models that do not generate: embeddings, reranking, classification",
    Feature.LORA: "LoRA adapters served as models: `headway lora`",
    Feature.MEASURED_STEPS: "the profiler times its steps; else predictions are estimates from the hardware",
}
"""What a feature is, for people."""


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
    adapter_needs = [] if request.adapter is None else [Feature.LORA]
    for feature in [*adapter_needs, *needs_of(request.sampling)]:
        if feature not in FEATURES[kind]:
            raise InvalidArgumentError(
                f"The model '{request.model}' runs on {kind}, which lacks {feature}.",
                hint=f"Leave it out, or serve the model with --engine {_other(feature)}.",
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
        hint=f"Serve the model with --engine {_other(feature)}.",
    )


def _other(feature: Feature) -> EngineKind:
    """An engine that has the feature."""
    return next(kind for kind in EngineKind if feature in FEATURES[kind])
