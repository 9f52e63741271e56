"""Tenants: clients that have an objective of their own."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import yaml
from pydantic import BaseModel, ConfigDict, Field, ValidationError

from headway.core.api_key import hash_of, hashed_key
from headway.core.errors import InvalidArgumentError
from headway.core.slo import Slo
from headway.gateway.keys import token_of

SALT_END = "\0"


@dataclass(frozen=True, slots=True, kw_only=True)
class Tenant:
    """A client of the service, with its objectives and API keys.

    Attributes:
        slo: objectives of its requests, as far as they name none.
        api_keys: the keys that identify it, as they are or as `sha256:HEX`.
        shares_prefixes: whether it shares cached prefixes with all who do, and with those who are no tenants: each
            learns from speed and `cached_tokens` what the others have asked.
        max_sequences: that it may have generated at once, at one gateway; None for no bound.
        weight: its part of what workers compute, beside other tenants that have requests.
    """

    name: str
    slo: Slo
    api_keys: tuple[str, ...] = ()
    shares_prefixes: bool = False
    max_sequences: int | None = None
    weight: float = 1.0

    @property
    def cache_salt(self) -> str:
        """Returns what begins the salt of all its requests. No client can send a salt that begins so."""
        return "" if self.shares_prefixes or not self.name else f"{self.name}{SALT_END}"


ANYONE = Tenant(name="", slo=Slo())


class Tenants:
    """The clients that the gateway knows."""

    def __init__(self, tenants: Sequence[Tenant] = ()) -> None:
        self._by_name = {tenant.name: tenant for tenant in tenants}
        self._by_key = {hashed_key(key): tenant for tenant in tenants for key in tenant.api_keys}

    @property
    def api_keys(self) -> list[str]:
        return list(self._by_key)

    @property
    def max_sequences(self) -> dict[str, int]:
        """Returns the bounds of those that have one, by name."""
        bounds = {name: tenant.max_sequences for name, tenant in self._by_name.items()}
        return {name: bound for name, bound in bounds.items() if bound is not None}

    def find(self, *, authorization: str, name: str) -> Tenant:
        """Returns the tenant that an API key belongs to, else the one that the request names; `ANYONE` where it names
        none.

        Raises:
            InvalidArgumentError: nobody has that name, or the key is somebody else's.
        """
        owner = self._by_key.get(hash_of(token_of(authorization)), ANYONE) if self._by_key else ANYONE
        if not name or name == owner.name:
            return owner
        tenant = self._by_name.get(name)
        if tenant is None or owner is not ANYONE or tenant.api_keys:
            raise _unknown(name)
        return tenant

    def named(self, name: str, *, given: str) -> Tenant:
        """Returns the tenant of a key that was made for it; one that the file does not know has no objectives.

        Raises:
            InvalidArgumentError: the request gives another name.
        """
        if given not in ("", name):
            raise _unknown(given)
        return self._by_name.get(name) or Tenant(name=name, slo=Slo())


def _unknown(name: str) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"The tenant '{name[:100]}' is unknown, or has another API key.",
        hint="Name one from the gateway's --tenants file, with its key if it has any.",
        field="x-headway-tenant",
    )


class _Entry(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    api_keys: tuple[str, ...] = ()
    shares_prefixes: bool = False
    max_sequences: int | None = Field(default=None, ge=1)
    weight: float = Field(default=1.0, gt=0, allow_inf_nan=False)
    slo_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    slo_ttft_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)
    slo_tpot_ms: float | None = Field(default=None, gt=0, allow_inf_nan=False)


class _File(BaseModel):
    model_config = ConfigDict(extra="forbid", frozen=True)

    tenants: dict[str, _Entry]


def read_tenants(path: Path) -> Tenants:
    """Reads the tenants from a YAML file; InvalidArgumentError names the file and what is wrong in it."""
    hint = "Write tenants: {gold: {api_keys: [KEY], slo_ms: 500}}; see docs/serve.md."
    try:
        document = _File.model_validate(yaml.safe_load(path.read_text()))
    except OSError as error:
        raise InvalidArgumentError(f"{path} cannot be read: {error.strerror}.", hint=hint, field="tenants") from error
    except ValidationError as error:
        fault = error.errors(include_url=False, include_input=False)[0]
        place = ".".join(map(str, fault["loc"])) or "the document"
        raise InvalidArgumentError(f"{path}, {place}: {fault['msg']}.", hint=hint, field="tenants") from error
    except (yaml.YAMLError, ValueError, RecursionError) as error:
        raise InvalidArgumentError(f"{path} is no YAML: {error}.", hint=hint, field="tenants") from error
    keys = [key for entry in document.tenants.values() for key in entry.api_keys]
    if len(keys) != len(set(keys)):
        raise InvalidArgumentError(f"{path} has an API key twice.", hint="Give each to one tenant.", field="tenants")
    return Tenants([_tenant(name, entry) for name, entry in document.tenants.items()])


def _tenant(name: str, entry: _Entry) -> Tenant:
    slo = Slo(ttft_s=_seconds(entry.slo_ttft_ms), tpot_s=_seconds(entry.slo_tpot_ms), e2e_s=_seconds(entry.slo_ms))
    return Tenant(
        name=name,
        slo=slo,
        api_keys=entry.api_keys,
        shares_prefixes=entry.shares_prefixes,
        max_sequences=entry.max_sequences,
        weight=entry.weight,
    )


def _seconds(milliseconds: float | None) -> float | None:
    return None if milliseconds is None else milliseconds / 1000
