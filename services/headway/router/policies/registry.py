"""The routing policies by name."""

from collections.abc import Callable

from headway.core.errors import InvalidArgumentError
from headway.router.policies.balanced import Balanced
from headway.router.policies.least_load import LeastLoad
from headway.router.policies.policy import Policy
from headway.router.policies.round_robin import RoundRobin

POLICIES: dict[str, Callable[[], Policy]] = {
    "balanced": Balanced,
    "least-load": LeastLoad,
    "round-robin": RoundRobin,
}


def make_policy(name: str) -> Policy:
    """The policy of this name; InvalidArgumentError if there is none."""
    if name not in POLICIES:
        raise InvalidArgumentError(
            f"There is no routing policy '{name}'.", hint=f"Choose one of {', '.join(POLICIES)}.", field="policy"
        )
    return POLICIES[name]()
