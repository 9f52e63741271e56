"""Converts the sampling parameters, which are sent once for each sequence."""

from headway.core.errors import InvalidArgumentError
from headway.core.request import BeamSearch, EarlyStopping, Guide, GuideKind, SamplingParams
from headway.v1 import common_pb2


def sampling_to_pb(sampling: SamplingParams) -> common_pb2.SamplingParams:
    return common_pb2.SamplingParams(
        max_tokens=sampling.max_tokens,
        temperature=sampling.temperature,
        top_k=sampling.top_k,
        top_p=sampling.top_p,
        min_p=sampling.min_p,
        presence_penalty=sampling.presence_penalty,
        frequency_penalty=sampling.frequency_penalty,
        repetition_penalty=sampling.repetition_penalty,
        seed=sampling.seed,
        stop_token_ids=sampling.stop_token_ids,
        ignore_eos=sampling.ignore_eos,
        min_tokens=sampling.min_tokens,
        num_logprobs=sampling.num_logprobs,
        num_prompt_logprobs=sampling.num_prompt_logprobs,
        logit_bias=[common_pb2.LogitBias(token_id=token_id, bias=bias) for token_id, bias in sampling.logit_bias],
        bad_token_ids=[common_pb2.TokenSequence(token_ids=token_ids) for token_ids in sampling.bad_token_ids],
        guide=None if sampling.guide is None else guide_to_pb(sampling.guide),
        beam=None if sampling.beam is None else _beam_to_pb(sampling.beam),
    )


def sampling_from_pb(message: common_pb2.SamplingParams) -> SamplingParams:
    """Proto3 zeros of fields whose zero means nothing (top_p, repetition_penalty) become the neutral value."""
    return SamplingParams(
        max_tokens=message.max_tokens,
        temperature=message.temperature,
        top_k=message.top_k,
        top_p=message.top_p or 1.0,
        min_p=message.min_p,
        presence_penalty=message.presence_penalty,
        frequency_penalty=message.frequency_penalty,
        repetition_penalty=message.repetition_penalty or 1.0,
        seed=message.seed,
        stop_token_ids=tuple(message.stop_token_ids),
        ignore_eos=message.ignore_eos,
        min_tokens=message.min_tokens,
        num_logprobs=message.num_logprobs if message.HasField("num_logprobs") else None,
        num_prompt_logprobs=(message.num_prompt_logprobs if message.HasField("num_prompt_logprobs") else None),
        logit_bias=tuple((entry.token_id, entry.bias) for entry in message.logit_bias),
        bad_token_ids=tuple(tuple(entry.token_ids) for entry in message.bad_token_ids),
        guide=guide_from_pb(message.guide) if message.HasField("guide") else None,
        beam=_beam_from_pb(message.beam) if message.HasField("beam") else None,
    )


def guide_to_pb(guide: Guide) -> common_pb2.Guide:
    return common_pb2.Guide(kind=guide.kind, text=guide.text)


def guide_from_pb(message: common_pb2.Guide) -> Guide:
    """InvalidArgumentError for a kind that there is not."""
    kinds = list(GuideKind)
    if message.kind not in kinds:
        raise InvalidArgumentError(
            f"There are no guides of kind '{message.kind[:100]}'.",
            hint=f"Kinds: {', '.join(kinds)}.",
            field="guide.kind",
        )
    return Guide(GuideKind(message.kind), message.text)


def _beam_to_pb(beam: BeamSearch) -> common_pb2.BeamSearch:
    return common_pb2.BeamSearch(
        width=beam.width,
        num_hypotheses=beam.num_hypotheses,
        length_penalty=beam.length_penalty,
        early_stopping=beam.early_stopping,
    )


def _beam_from_pb(message: common_pb2.BeamSearch) -> BeamSearch:
    return BeamSearch(
        width=message.width,
        num_hypotheses=message.num_hypotheses,
        length_penalty=message.length_penalty,
        early_stopping=_early_stopping(message.early_stopping),
    )


def _early_stopping(text: str) -> EarlyStopping:
    if text not in set(EarlyStopping):
        raise InvalidArgumentError(
            f"The rule '{text[:100]}' of a beam search is unknown.",
            hint=f"Send one of: {', '.join(EarlyStopping)}.",
            field="early_stopping",
        )
    return EarlyStopping(text)
