"""The client of the API server: it changes nothing that another controller may be changing by now."""

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec

from headway.controller.kubernetes.api import PODS, KubernetesApi
from headway.core.errors import UnavailableError

NOBODY = "https://127.0.0.1:9"


@pytest.fixture
def account(tmp_path: Path) -> Path:
    """What a pod of a service account has mounted."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "tests")])
    begin = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(1)
        .not_valid_before(begin)
        .not_valid_after(begin + timedelta(days=1))
        .sign(key, hashes.SHA256())
    )
    (tmp_path / "ca.crt").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))
    (tmp_path / "token").write_text("a-token")
    (tmp_path / "namespace").write_text("serving")
    return tmp_path


async def test_nothing_is_changed_while_another_controller_may_be_at_work(account: Path) -> None:
    lease = {"is ours": False}

    async def may_act() -> bool:
        return lease["is ours"]

    api = KubernetesApi(NOBODY, directory=account, may_act=may_act)
    for lease["is ours"], told in ((False, "Another controller may be at work"), (True, "does not answer")):
        for change in (
            api.apply(PODS, "cell-0", {}),
            api.apply_status(PODS, "cell-0", {}),
            api.delete(PODS, "cell-0", uid="1"),
            api.create_event({}),
        ):
            with pytest.raises(UnavailableError, match=told):
                await change
    with pytest.raises(UnavailableError, match="does not answer"):
        await api.list(PODS)
    await api.close()
