"""A client's request to an encoder, tokenised and checked, and its answer."""

import math
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from headway.core.infer import InferRequest, InferSequence
from headway.core.slo import Slo
from headway.gateway.job import Arrival
from headway.gateway.model import ServedModel


@dataclass(frozen=True, slots=True, kw_only=True)
class InferJob:
    """The checked sequences of one encoder request, for one model.

    Attributes:
        request_id: the request's id, unique over all gateways.
        arrived_s: when the request arrived, in the monotonic clock's seconds.
        traceparent: W3C context of the request's span; empty when tracing is off.
    """

    request_id: str
    model: ServedModel
    sequences: tuple[InferSequence, ...]
    slo: Slo
    arrived_s: float
    priority: int = 0
    tenant: str = ""
    tenant_weight: float = 1.0
    traceparent: str = ""

    def request(self, *, now_s: float, answer_overhead_s: float = 0.0) -> InferRequest:
        """Returns the request to send to a worker at `now_s`. Its deadline is `answer_overhead_s` seconds before the
        client's.
        """
        bound_s = self.slo.wait_s - answer_overhead_s
        return InferRequest(
            request_id=self.request_id,
            model=self.model.name,
            sequences=self.sequences,
            slo_s=max(0.0, self.arrived_s + bound_s - now_s) if bound_s < math.inf else None,
            priority=self.priority,
        )

    @property
    def num_tokens(self) -> int:
        return sum(len(sequence.token_ids) for sequence in self.sequences)


@dataclass(frozen=True, slots=True, kw_only=True)
class InferAnswer:
    """The results of an `InferJob`.

    Attributes:
        vectors: float32 [sequences, width]: embeddings, or a score for each label.
        num_tokens: the tokens of all sequences together.
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
        slo=arrival.slo.over(model.slo),
        priority=arrival.priority,
        tenant=arrival.tenant,
        tenant_weight=arrival.tenant_weight,
        arrived_s=arrival.at_s,
        traceparent=arrival.traceparent,
    )
