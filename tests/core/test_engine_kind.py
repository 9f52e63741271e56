"""What engines declare, and what is refused for it."""

import pytest

from deploy.engines import PAGE, page_with_table
from headway.core.engine_args import check_engine_args
from headway.core.engine_kind import FEATURES, WORDS, EngineKind, Feature, check_request
from headway.core.errors import FailedPreconditionError, HeadwayError, InvalidArgumentError
from headway.core.request import BeamSearch, GenerationRequest, Guide, GuideKind, SamplingParams

GREEDY = {"temperature": 0.0}


def request(*outputs: int, **sampling: object) -> GenerationRequest:
    return GenerationRequest(
        request_id="r",
        model="m",
        prompt_token_ids=(1, 2),
        output_token_ids=outputs,
        sampling=SamplingParams(**sampling),  # type: ignore[arg-type]
    )


@pytest.mark.parametrize(
    ("asked", "feature"),
    [
        (request(beam=BeamSearch(width=2)), Feature.BEAM_SEARCH),
        (request(guide=Guide(GuideKind.REGEX, "a")), Feature.GUIDED),
        (request(bad_token_ids=((1,),)), Feature.BAD_WORDS),
    ],
)
def test_what_an_engine_lacks_is_refused_with_the_features_name(asked: GenerationRequest, feature: Feature) -> None:
    check_request(asked, EngineKind.HEADWAY)
    with pytest.raises(InvalidArgumentError, match=f"vllm, which lacks {feature}") as refused:
        check_request(asked, EngineKind.VLLM)
    assert refused.value.field == feature


@pytest.mark.parametrize(
    ("asked", "feature"),
    [
        (request(3, temperature=1.0), Feature.RESUME_SEEDED),
        (request(3, presence_penalty=1.0, **GREEDY), Feature.RESUME_PENALTIES),
        (request(3, frequency_penalty=-1.0, **GREEDY), Feature.RESUME_PENALTIES),
    ],
)
def test_a_stream_that_would_go_on_otherwise_is_refused(asked: GenerationRequest, feature: Feature) -> None:
    check_request(asked, EngineKind.HEADWAY)
    with pytest.raises(FailedPreconditionError, match=f"lacks {feature}"):
        check_request(asked, EngineKind.VLLM)


@pytest.mark.parametrize("kind", EngineKind)
def test_what_needs_nothing_special_runs_everywhere(kind: EngineKind) -> None:
    check_request(request(temperature=1.0, seed=3, num_logprobs=2, logit_bias=((1, 2.0),)), kind)
    check_request(request(3, 4, repetition_penalty=1.2, **GREEDY), kind)


def test_an_engine_that_an_older_process_does_not_name_is_ours() -> None:
    assert EngineKind("") is EngineKind.HEADWAY
    with pytest.raises(ValueError, match="sglang"):
        EngineKind("sglang")


def test_the_documentation_has_what_the_engines_declare() -> None:
    assert set(WORDS) == set(Feature) == FEATURES[EngineKind.HEADWAY] | FEATURES[EngineKind.VLLM]
    page = PAGE.read_text()
    assert page == page_with_table(page), "run python -m deploy.engines"


@pytest.mark.parametrize("text", ["", "--enforce-eager", "--compilation-config '{\"mode\": 0}' --max-loras=2"])
def test_an_engines_own_arguments_pass(text: str) -> None:
    check_engine_args(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("--max-num-seqs 4", "--max-num-seqs'.*decided by --max-num-seqs"),
        ("--enforce-eager --block_size=16", "decided by --block-size"),
        ("-tp 2", "decided by --tp"),
        ("--gpu-memory-utilization 0.5", "decided by --memory"),
        ("enforce-eager", "is no flag"),
        ("--model 'half", "cannot be read"),
    ],
)
def test_arguments_that_contradict_the_plan_are_refused_by_name(text: str, words: str) -> None:
    with pytest.raises(HeadwayError, match=words) as refused:
        check_engine_args(text)
    assert refused.value.field == "--engine-args"
