"""A client's request to an encoder, tokenised and checked, and its answer."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.infer import InferRequest, InferSequence
from headway.core.slo import Slo
from headway.gateway.job import Arrival, merge_slo
from headway.gateway.model import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class InferJob:
    """Sequences for one model.

    Attributes:
        request_id: unique over all gateways.
        arrived_s: by the monotonic clock.
        traceparent: W3C context of the request's span; empty when tracing is off.
    """

    request_id: str
    model: ServedModel
    sequences: tuple[InferSequence, ...]
    slo: Slo
    arrived_s: float
    traceparent: str = ""

    @property
    def request(self) -> InferRequest:
        return InferRequest(request_id=self.request_id, model=self.model.name, sequences=self.sequences)

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferAnswer:
    """What came of a job.

    Attributes:
        vectors: float32 [sequences, width]: embeddings, or a score for each label.
        num_tokens: of all sequences.
    """

    vectors: NDArray[np.float32]
    num_tokens: int


def make_infer_job(
    request_id: str, *, model: ServedModel, sequences: Sequence[InferSequence], arrival: Arrival
) -> InferJob:
    return InferJob(
        request_id=request_id,
        model=model,
        sequences=tuple(sequences),
        slo=merge_slo(arrival.slo, model.slo),
        arrived_s=arrival.at_s,
        traceparent=arrival.traceparent,
    )
