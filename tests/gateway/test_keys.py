"""Keys as they are and hashed: a hash opens nothing."""

import time

import pytest

from headway.core.api_key import hash_of, hashed_key
from headway.core.errors import UnauthenticatedError
from headway.core.slo import Slo
from headway.gateway.key_ring import KeyRing
from headway.gateway.keys import ApiKeys, OperatorKeys
from headway.gateway.tenants import ANYONE, Tenant, Tenants

HASH = hash_of("secret")


def test_a_key_is_hashed_once() -> None:
    assert hashed_key("secret") == hashed_key(HASH) == HASH
    assert hashed_key("sha256:short") != "sha256:short"


@pytest.mark.parametrize("kept", ["secret", HASH])
def test_a_key_opens_however_it_is_kept_and_its_hash_does_not(kept: str) -> None:
    ring = KeyRing(None, wall_clock=time.time, clock=time.monotonic)
    clients = ApiKeys(["other", kept], ring=ring)
    operators = OperatorKeys([kept], guards_paths=True, clients=clients, ring=ring)
    tenants = Tenants([Tenant(name="gold", slo=Slo(), api_keys=(kept,))])
    for check in (clients.check, operators.check_path, operators.check_status):
        check("Bearer secret")
        for wrong in (f"Bearer {HASH}", "Bearer ", "", "secret"):
            with pytest.raises(UnauthenticatedError):
                check(wrong)
    assert tenants.find(authorization="Bearer secret", name="").name == "gold"
    assert tenants.find(authorization=f"Bearer {HASH}", name="") is ANYONE
