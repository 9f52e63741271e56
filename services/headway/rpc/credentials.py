"""Who a caller is: each kind of process has a token of its own, derived from that of the stack.

The stack's token is the operator's: of people and of the commands that they type. A process that is launched gets the
token of its role, and the hashes of all: it can tell who calls, and can call as nobody else.
"""

import hmac
from collections.abc import Mapping
from dataclasses import dataclass

from headway.core.api_key import hash_of

OPERATOR = "operator"
ROLES = ("gateway", "router", "kvcache", "planner", "profiler", "controller", "worker", "cell")


def role_token(stack_token: str, role: str) -> str:
    """The token of a role; nobody who has it can derive another one, or the stack's."""
    if role == OPERATOR:
        return stack_token
    return hmac.new(stack_token.encode(), f"headway-role {role}".encode(), "sha256").hexdigest()


def token_hashes(stack_token: str) -> dict[str, str]:
    """The hash of each role's token."""
    return {role: hash_of(role_token(stack_token, role)) for role in (OPERATOR, *ROLES)}


@dataclass(frozen=True, slots=True)
class Credentials:
    """A process's own token, and the hashes by which it knows callers, by role."""

    token: str
    hashes: Mapping[str, str]

    @classmethod
    def of_stack(cls, stack_token: str, *, role: str) -> "Credentials":
        """Those of a process that was given the stack's token itself."""
        return cls(role_token(stack_token, role), token_hashes(stack_token))

    def role_of(self, token: str) -> str | None:
        """The role of a caller that sent this token; None where it is nobody's. The time taken tells nothing."""
        hashed = hash_of(token)
        matches = [role for role, known in self.hashes.items() if hmac.compare_digest(hashed, known)]
        return matches[0] if matches else None
