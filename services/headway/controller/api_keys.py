"""Makes API keys and takes them back."""

import logging
import re
import secrets
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Protocol

from headway.core.api_key import ApiKeyRecord, hash_of
from headway.core.errors import InvalidArgumentError, NotFoundError
from headway.observe.failpoint import failpoint

audit_log = logging.getLogger("headway.audit")

_NAME = re.compile(r"[\w.@-]{1,100}")
_NUM_SECRET_BYTES = 32


class ApiKeyBook(Protocol):
    """Where the keys are kept."""

    async def put(self, record: ApiKeyRecord) -> None:
        """Keeps a key, in place of one of the same id."""

    async def get(self, key_id: str) -> ApiKeyRecord | None:
        """A key by its id; None if it is unknown."""

    async def all(self) -> list[ApiKeyRecord]:
        """All keys, the oldest first."""


class ApiKeys:
    """The keys of a stack.

    Args:
        clock: seconds since 1970.
    """

    def __init__(self, book: ApiKeyBook, *, clock: Callable[[], float]) -> None:
        self._book = book
        self._clock = clock

    async def create(
        self,
        *,
        tenant: str = "",
        models: Sequence[str] = (),
        requests_per_minute: int | None = None,
        lifetime_s: float | None = None,
        is_admin: bool = False,
    ) -> tuple[str, ApiKeyRecord]:
        """Makes a key; returns it, which nobody can look up later, and what is kept of it.

        Raises:
            InvalidArgumentError: one of its bounds is none.
        """
        if tenant and _NAME.fullmatch(tenant) is None:
            raise InvalidArgumentError(
                f"The tenant is '{tenant[:100]}'.",
                hint="Use up to 100 letters, digits and any of _.@-.",
                field="tenant",
            )
        if not all(models):
            raise InvalidArgumentError("A model has no name.", hint="`headway status` lists them.", field="models")
        for field, bound in (("requests_per_minute", requests_per_minute), ("lifetime_s", lifetime_s)):
            if bound is not None and not 0 < bound < 2**31:
                raise InvalidArgumentError(f"{field} is {bound}, it must be above 0 and below 2^31.", field=field)
        now_s, key_id = self._clock(), f"key-{secrets.token_hex(6)}"
        key = f"hw-{secrets.token_urlsafe(_NUM_SECRET_BYTES)}"
        record = ApiKeyRecord(
            key_id=key_id,
            hashed=hash_of(key),
            tenant=tenant,
            models=tuple(dict.fromkeys(models)),
            requests_per_minute=requests_per_minute,
            is_admin=is_admin,
            created_at_s=now_s,
            expires_at_s=None if lifetime_s is None else now_s + lifetime_s,
        )
        await self._book.put(record)
        failpoint("controller.key-kept")
        audit_log.info("%s is made for tenant '%s'%s", key_id, tenant, ", an operator's" if is_admin else "")
        return key, record

    async def list(self) -> list[ApiKeyRecord]:
        """All keys that were ever made, the oldest first."""
        return await self._book.all()

    async def revoke(self, key_id: str) -> ApiKeyRecord:
        """Takes a key back, for good; one that was taken back already stays so. NotFoundError if it is unknown."""
        record = await self._book.get(key_id)
        if record is None:
            raise NotFoundError(
                f"There is no key '{key_id[:100]}'.", hint="`headway key list` shows them.", field="key_id"
            )
        if record.revoked_at_s is None:
            record = replace(record, revoked_at_s=self._clock())
            await self._book.put(record)
            audit_log.info("%s of tenant '%s' is revoked", key_id, record.tenant)
        return record
