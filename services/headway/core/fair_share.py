"""Fair shares between tenants: whoever has had least is next. Pure; the router's queue and the engine's line go by it.

Each tenant has a virtual time: the tokens that were computed for it, over its weight. Of those who have requests, the
one that is furthest behind is served next (weighted fair queueing, with tokens as the cost as in "Fairness in Serving
Large Language Models", algorithm 2). Between two tenants who both always have requests, tokens over weight differ by no
more than one request's on either side, whatever the one sends. Who had none for a while starts again where the one
furthest behind is by then: being idle saves nothing up. Debts last until nobody has a request.
"""

import math
from collections import Counter
from collections.abc import Mapping

from headway.core.errors import InvalidArgumentError


class FairShare:
    """Virtual times of tenants. The empty name is a tenant as any other: all who are none in particular."""

    def __init__(self) -> None:
        self._times: dict[str, float] = {}
        self._weights: dict[str, float] = {}  # of those that have requests
        self._num_requests: Counter[str] = Counter()

    @property
    def weights(self) -> Mapping[str, float]:
        """The weight of each tenant that has requests."""
        return self._weights

    @property
    def is_shared(self) -> bool:
        """Whether several tenants have requests. Otherwise there is nothing to decide."""
        return len(self._weights) > 1

    def enter(self, tenant: str, *, weight: float = 1.0) -> None:
        """Counts a request of a tenant; the weight is the tenant's from now on."""
        if tenant not in self._weights:
            behind = min((self._times[other] for other in self._weights), default=0.0)
            self._times[tenant] = max(self._times.get(tenant, 0.0), behind)
        self._weights[tenant] = weight
        self._num_requests[tenant] += 1

    def leave(self, tenant: str) -> None:
        """Takes back what `enter` has counted."""
        self._num_requests[tenant] -= 1
        if self._num_requests[tenant] == 0:
            del self._num_requests[tenant], self._weights[tenant]
            if not self._weights:
                self._times.clear()

    def charge(self, tenant: str, num_tokens: float) -> None:
        """Notes tokens that were computed for a tenant; no change for one that has left."""
        weight = self._weights.get(tenant)
        if weight is not None:
            self._times[tenant] += num_tokens / weight

    def num_requests(self, tenant: str) -> int:
        return self._num_requests[tenant]

    def time(self, tenant: str) -> float:
        """Returns the virtual time of a tenant that has requests; the lowest is next."""
        return self._times[tenant]

    def share(self, tenant: str, total: float) -> float:
        """Returns the part of `total` that a tenant can claim beside the others that have requests."""
        weights = self._weights
        own = weights.get(tenant, 1.0)
        return total * own / (sum(weights.values()) + (0.0 if tenant in weights else own))


def check_weight(weight: float, *, field: str) -> None:
    """InvalidArgumentError unless a weight is a number above 0."""
    if not 0 < weight < math.inf:
        raise InvalidArgumentError(
            f"{field} is {weight}, it must be above 0.", hint="1 is what everybody else has.", field=field
        )
