"""The certificates of a stack on one machine: an authority of its own, in the state directory."""

import datetime as dt
from pathlib import Path
from typing import TypeAlias

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

from headway.client.private_file import replace_private_file
from headway.core.errors import InvalidArgumentError
from headway.core.tls_files import TlsFiles
from headway.rpc.certificates import SERVER_NAME

_DIRECTORY = "tls"
_CA, _CA_KEY, _CERT, _KEY = "ca.pem", "ca-key.pem", "cert.pem", "key.pem"
_CA_LIFE = dt.timedelta(days=3650)
_CERT_LIFE = dt.timedelta(days=365)
_RENEWED_BEFORE = dt.timedelta(days=30)
_CLOCKS_DIFFER = dt.timedelta(hours=1)

_Pair: TypeAlias = tuple[x509.Certificate, ec.EllipticCurvePrivateKey]


def local_files(state_dir: Path) -> TlsFiles:
    """Where the certificates of a stack with that state directory are."""
    directory = state_dir / _DIRECTORY
    return TlsFiles(ca=str(directory / _CA), cert=str(directory / _CERT), key=str(directory / _KEY))


def keep_certificate(state_dir: Path) -> TlsFiles:
    """Makes the authority where there is none, and a certificate where there is none that is good for a month.

    Only their owner may read the files. InvalidArgumentError where what is there cannot be read.
    """
    directory = state_dir / _DIRECTORY
    directory.mkdir(mode=0o700, exist_ok=True)
    now = dt.datetime.now(dt.UTC)
    if not _is_good(directory / _CERT, now) or not _is_good(directory / _CA, now):
        make_certificate(state_dir)
    return local_files(state_dir)


def make_certificate(state_dir: Path) -> None:
    """Makes a new certificate, which takes the place of the last one; the authority stays while it is good."""
    directory = state_dir / _DIRECTORY
    now = dt.datetime.now(dt.UTC)
    if _is_good(directory / _CA, now):
        authority = _read_authority(directory)
    else:
        authority = _signed("Headway's local authority", None, life=_CA_LIFE, now=now)
        _write_pair(directory, authority, _CA, _CA_KEY)
    _write_pair(directory, _signed(SERVER_NAME, authority, life=_CERT_LIFE, now=now), _CERT, _KEY)


def _signed(name: str, authority: _Pair | None, *, life: dt.timedelta, now: dt.datetime) -> _Pair:
    """A certificate and its key; without an authority it is one itself."""
    key = ec.generate_private_key(ec.SECP256R1())
    subject = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
    issuer, signing_key = (subject, key) if authority is None else (authority[0].subject, authority[1])
    is_authority = authority is None
    builder = (
        x509.CertificateBuilder()
        .subject_name(subject)
        .issuer_name(issuer)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - _CLOCKS_DIFFER)
        .not_valid_after(now + life)
        .add_extension(x509.BasicConstraints(ca=is_authority, path_length=0 if is_authority else None), critical=True)
        .add_extension(x509.SubjectKeyIdentifier.from_public_key(key.public_key()), critical=False)
        .add_extension(x509.AuthorityKeyIdentifier.from_issuer_public_key(signing_key.public_key()), critical=False)
    )
    if not is_authority:
        uses = [ExtendedKeyUsageOID.SERVER_AUTH, ExtendedKeyUsageOID.CLIENT_AUTH]
        names = [x509.DNSName(SERVER_NAME), x509.DNSName("localhost")]
        builder = builder.add_extension(x509.ExtendedKeyUsage(uses), critical=False)
        builder = builder.add_extension(x509.SubjectAlternativeName(names), critical=False)
    return builder.sign(signing_key, hashes.SHA256()), key


def _is_good(path: Path, now: dt.datetime) -> bool:
    try:
        certificate = x509.load_pem_x509_certificate(path.read_bytes())
    except FileNotFoundError:
        return False
    except ValueError:
        raise _broken(path) from None
    return now + _RENEWED_BEFORE < certificate.not_valid_after_utc


def _read_authority(directory: Path) -> _Pair:
    path = directory / _CA_KEY
    try:
        key = serialization.load_pem_private_key(path.read_bytes(), password=None)
        certificate = x509.load_pem_x509_certificate((directory / _CA).read_bytes())
    except (OSError, ValueError):
        raise _broken(path) from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise _broken(path)
    return certificate, key


def _write_pair(directory: Path, pair: _Pair, certificate_name: str, key_name: str) -> None:
    certificate, key = pair
    encoding = serialization.Encoding.PEM
    secret = key.private_bytes(encoding, serialization.PrivateFormat.PKCS8, serialization.NoEncryption())
    for name, content in ((key_name, secret), (certificate_name, certificate.public_bytes(encoding))):
        replace_private_file(directory / name, content)


def _broken(path: Path) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{path} is not a PEM file of this stack's authority.",
        hint=f"Delete {path.parent}: its certificates are made anew.",
    )
