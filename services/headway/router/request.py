"""A request as the router sees it."""

from dataclasses import dataclass, field

from headway.core.slo import Slo


@dataclass(frozen=True, slots=True, kw_only=True)
class RoutingRequest:
    """A request for a place, as the gateway sends it.

    Attributes:
        request_id: unique within its gateway; a request holds one lease at a time.
        attempt: tells apart the times that the gateway asked for it; 0 where it does not say.
        gateway_id: member id of the gateway.
        num_prompt_tokens: the prompt's tokens, all of them to be prefilled where nothing is cached.
        max_output_tokens: the most output tokens of each sequence.
        block_hashes: the hashes of the prompt's full blocks, in order.
        excluded_worker_ids: workers that failed the request already.
        resumed: whether its stream was cut off when its worker died, so that it is neither refused nor queued behind
            others.
        preferred_worker_id: the worker that holds its blocks since it was moved there; empty for none.
        stays: whether it cannot move to another worker; true for a beam search.
        priority: the lowest goes first where requests wait by priority.
        num_sequences: the sequences that it generates from the one prompt.
        elapsed_s: seconds since it came to the gateway.
        tenant: who asks; empty for nobody in particular.
        tenant_weight: the tenant's part beside other tenants.
        adapter: the key of the one that changes the model; empty for none.
        traceparent: the W3C trace context; empty when tracing is off.
    """

    request_id: str
    model: str
    gateway_id: str
    num_prompt_tokens: int
    max_output_tokens: int
    block_hashes: tuple[bytes, ...] = ()
    slo: Slo = field(default_factory=Slo)
    excluded_worker_ids: frozenset[str] = frozenset()
    resumed: bool = False
    preferred_worker_id: str = ""
    stays: bool = False
    priority: int = 0
    num_sequences: int = 1
    elapsed_s: float = 0.0
    tenant: str = ""
    tenant_weight: float = 1.0
    traceparent: str = ""
    adapter: str = ""
    attempt: int = 0
