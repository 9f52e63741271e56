"""Who sends a request: a tenant, by a key that may open some models only."""

from collections.abc import Collection
from dataclasses import dataclass

from headway.core.api_key import hash_of
from headway.core.errors import NotFoundError
from headway.gateway.key_ring import KeyRing
from headway.gateway.keys import token_of
from headway.gateway.tenants import Tenant, Tenants


@dataclass(frozen=True, slots=True)
class Caller:
    """Attributes:
    models: that the caller's key opens; empty for all.
    """

    tenant: Tenant
    models: Collection[str] = ()

    def may_use(self, model: str) -> bool:
        return not self.models or model in self.models

    def check_model(self, model: str) -> None:
        """NotFoundError where the key does not open a model, whether there is one of that name or not."""
        if not self.may_use(model):
            raise NotFoundError(
                f"The model '{model[:100]}' is not one that this API key opens.",
                hint=f"Ask for one of: {', '.join(self.models)}.",
                field="model",
            )


class Callers:
    """Finds out who sends a request that was let in.

    Args:
        tenants: those of the gateway's file.
        ring: the keys that are made while the stack runs.
    """

    def __init__(self, tenants: Tenants, *, ring: KeyRing) -> None:
        self._tenants = tenants
        self._ring = ring

    def find(self, *, authorization: str, name: str) -> Caller:
        """Returns whose a request is, by its key, or else by the name that it gives.

        Raises:
            InvalidArgumentError: nobody has that name, or the key is somebody else's.
        """
        token = token_of(authorization)
        record = self._ring.find(hash_of(token)) if token else None
        if record is None:
            return Caller(self._tenants.find(authorization=authorization, name=name))
        if not record.tenant:
            return Caller(self._tenants.find(authorization="", name=name), record.models)
        return Caller(self._tenants.named(record.tenant, given=name), record.models)
