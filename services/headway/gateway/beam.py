"""The hypotheses of a beam search on the way from tokens to text."""

from collections.abc import Sequence
from dataclasses import replace

from headway.core.request import FinishReason, GenerationRequest, Hypothesis, SequenceOutput
from headway.gateway.decoding import Decoding
from headway.gateway.job import Delta


class BeamDecoding:
    """Decodes all hypotheses of one beam search. They come together at its end, so a worker that dies earlier leaves
    nothing.

    Args:
        decodings: one for each hypothesis that is wanted, best first.
    """

    __slots__ = ("_decodings",)

    def __init__(self, decodings: Sequence[Decoding]) -> None:
        self._decodings = decodings

    @property
    def sequence_id(self) -> str:
        return self.request.request_id

    @property
    def request(self) -> GenerationRequest:
        return self._decodings[0].request

    def accept(self, output: SequenceOutput) -> list[Delta]:
        """Returns one whole delta for each hypothesis."""
        pairs = zip(self._decodings, output.hypotheses, strict=True)
        deltas = [_delta(decoding, hypothesis, output) for decoding, hypothesis in pairs]
        return [replace(deltas[0], num_cached_tokens=output.num_cached_tokens), *deltas[1:]]


def _delta(decoding: Decoding, hypothesis: Hypothesis, output: SequenceOutput) -> Delta:
    has_stopped = hypothesis.finish_reason is FinishReason.STOP
    whole = SequenceOutput(
        request_id=output.request_id,
        token_ids=hypothesis.token_ids,
        finish_reason=hypothesis.finish_reason,
        stop_token_id=hypothesis.token_ids[-1] if has_stopped else None,
    )
    (delta,) = decoding.accept(whole)
    return delta
