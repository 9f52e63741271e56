"""Authorities for tests, and certificates as good or bad as they are asked for."""

import datetime as dt
from pathlib import Path

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from headway.core.tls_files import TlsFiles


class Authority:
    """Signs certificates, which it writes to its directory."""

    def __init__(self, directory: Path) -> None:
        directory.mkdir(exist_ok=True)
        self._directory = directory
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, directory.name)])
        certificate = self._build(self._name, self._key, days=1, is_authority=True)
        (directory / "ca.pem").write_bytes(certificate.public_bytes(serialization.Encoding.PEM))

    def issue(self, *, name: str = "headway", days: float = 1) -> TlsFiles:
        """Files of a certificate for so many days, in the place of the last ones."""
        key = ec.generate_private_key(ec.SECP256R1())
        subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        pem, pkcs8 = serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8
        self._replace("key.pem", key.private_bytes(pem, pkcs8, serialization.NoEncryption()))
        self._replace("cert.pem", self._build(subject, key, days=days, names=(name,)).public_bytes(pem))
        return TlsFiles(**{each: str(self._directory / f"{each}.pem") for each in ("ca", "cert", "key")})

    def _replace(self, name: str, content: bytes) -> None:
        staging = self._directory / f".{name}"
        staging.write_bytes(content)
        staging.replace(self._directory / name)

    def _build(
        self,
        subject: x509.Name,
        key: ec.EllipticCurvePrivateKey,
        *,
        days: float,
        names: tuple[str, ...] = (),
        is_authority: bool = False,
    ) -> x509.Certificate:
        now = dt.datetime.now(dt.UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(subject)
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - dt.timedelta(days=30))
            .not_valid_after(now + dt.timedelta(days=days))
            .add_extension(x509.BasicConstraints(ca=is_authority, path_length=None), critical=True)
        )
        if names:
            builder = builder.add_extension(x509.SubjectAlternativeName([*map(x509.DNSName, names)]), critical=False)
        return builder.sign(self._key, hashes.SHA256())
