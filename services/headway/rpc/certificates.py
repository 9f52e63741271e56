"""TLS between processes: the files of certificates, read again when they change, and what gRPC makes of them.

All processes of a stack are called by one name, whatever their addresses: certificates are made out to it, and outlive
any address. Which kind of process calls is said by its token.
"""

import logging
import ssl
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import grpc

from headway.core.errors import InvalidArgumentError
from headway.core.tls_files import TlsFiles

log = logging.getLogger(__name__)

SERVER_NAME = "headway"
"""The DNS name in the certificate of every process."""

_Stamp = tuple[tuple[int, int, int], ...]


@dataclass(frozen=True, slots=True)
class _Contents:
    """What the files hold, in PEM; None for files that a client has not."""

    ca: bytes
    cert: bytes | None
    key: bytes | None


class Certificates:
    """The certificates of one end of a connection.

    Files that are replaced are taken up at the next connection; those that cannot be used are told in the log, and the
    last good ones stay.

    Raises:
        InvalidArgumentError: a file is missing, is not what it should be, or others would not accept it.
    """

    def __init__(self, files: TlsFiles) -> None:
        self._files = files
        self._lock = threading.Lock()  # gRPC asks in threads of its own
        self._stamp = _stamp(files)
        self._contents = _read(files)

    def renew(self) -> bool:
        """Reads the files again if they were replaced; whether there is something new."""
        with self._lock:
            try:
                if (stamp := _stamp(self._files)) == self._stamp:
                    return False
                contents = _read(self._files)
                if stamp != _stamp(self._files):  # they are just being replaced: at the next look
                    return False
            except InvalidArgumentError as error:
                log.warning("the certificates stay as they were: %s", error)
                return False
            self._stamp = stamp
            is_new, self._contents = contents != self._contents, contents
            return is_new

    def for_server(self, *, knows_clients: bool) -> grpc.ServerCredentials:
        """The credentials of a server: each new connection gets what the files hold then.

        Args:
            knows_clients: whether a client needs a certificate too.
        """
        return grpc.dynamic_ssl_server_credentials(
            self._for_connection(),
            self._for_connection,
            require_client_authentication=knows_clients,
        )

    def for_channel(self) -> grpc.ChannelCredentials:
        """The credentials of a channel, which keeps them for as long as it lives."""
        contents = self._contents
        return grpc.ssl_channel_credentials(contents.ca, contents.key, contents.cert)

    def _for_connection(self) -> grpc.ServerCertificateConfiguration:
        self.renew()
        contents = self._contents
        return grpc.ssl_server_certificate_configuration([(contents.key or b"", contents.cert or b"")], contents.ca)


def open_channel(
    endpoint: str,
    certificates: Certificates | None,
    *,
    options: Sequence[tuple[str, Any]],
    interceptors: Sequence[grpc.aio.ClientInterceptor] | None = None,
) -> grpc.aio.Channel:
    """A channel to host:port; not encrypted without certificates."""
    if certificates is None:
        return grpc.aio.insecure_channel(endpoint, options=options, interceptors=interceptors)
    return grpc.aio.secure_channel(
        endpoint, certificates.for_channel(), options=_named(options), interceptors=interceptors
    )


def open_blocking_channel(
    endpoint: str, certificates: Certificates | None, *, options: Sequence[tuple[str, Any]]
) -> grpc.Channel:
    """The same for calls from threads."""
    if certificates is None:
        return grpc.insecure_channel(endpoint, options=options)
    return grpc.secure_channel(endpoint, certificates.for_channel(), options=_named(options))


def _named(options: Sequence[tuple[str, Any]]) -> tuple[tuple[str, Any], ...]:
    """Options of an encrypted channel: it asks for the stack's name and not for the address."""
    return (*options, ("grpc.ssl_target_name_override", SERVER_NAME))


def _stamp(files: TlsFiles) -> _Stamp:
    """Changes when a file is written or replaced."""
    paths = [Path(path) for path in (files.ca, files.cert, files.key) if path]
    try:
        return tuple((stat.st_ino, stat.st_mtime_ns, stat.st_size) for stat in (path.stat() for path in paths))
    except OSError as error:
        raise _unreadable(error) from None


def _read(files: TlsFiles) -> _Contents:
    """Reads and checks the files."""
    try:
        contents = _Contents(
            ca=Path(files.ca).read_bytes(),
            cert=Path(files.cert).read_bytes() if files.cert else None,
            key=Path(files.key).read_bytes() if files.key else None,
        )
    except OSError as error:
        raise _unreadable(error) from None
    client = _context(files, ssl.PROTOCOL_TLS_CLIENT, contents.ca)
    if files.cert:
        _shake_hands(files, client, _context(files, ssl.PROTOCOL_TLS_SERVER, contents.ca))
    return contents


def _context(files: TlsFiles, protocol: int, ca: bytes) -> ssl.SSLContext:
    context = ssl.SSLContext(protocol)
    context.minimum_version = ssl.TLSVersion.TLSv1_3
    context.verify_mode = ssl.CERT_REQUIRED
    context.verify_flags |= ssl.VerifyFlags.VERIFY_X509_PARTIAL_CHAIN  # as gRPC: an authority need not be a root
    try:
        context.load_verify_locations(cadata=ca.decode("ascii"))
    except (ssl.SSLError, UnicodeDecodeError) as error:
        raise InvalidArgumentError(
            f"{files.ca} holds no certificate of an authority ({_reason(error)}).",
            hint="It should be a PEM file.",
            field="tls_ca",
        ) from None
    if files.cert:
        _load(files, context)
    return context


def _load(files: TlsFiles, context: ssl.SSLContext) -> None:
    try:
        context.load_cert_chain(files.cert, files.key, password=b"")  # or OpenSSL would ask for one
    except (ssl.SSLError, OSError) as error:
        raise InvalidArgumentError(
            f"{files.cert} and {files.key} are no certificate and its private key ({_reason(error)}).",
            hint="Both should be PEM files, and the key not encrypted.",
            field="tls_cert",
        ) from None


def _shake_hands(files: TlsFiles, client: ssl.SSLContext, server: ssl.SSLContext) -> None:
    """Has the two ends meet in memory: what one refuses, others would."""
    to_client, to_server = ssl.MemoryBIO(), ssl.MemoryBIO()
    first = client.wrap_bio(to_client, to_server, server_hostname=SERVER_NAME)
    second = server.wrap_bio(to_server, to_client, server_side=True)
    try:
        for end in (first, second, first, second):
            try:
                end.do_handshake()
            except ssl.SSLWantReadError:
                continue
    except ssl.SSLError as error:
        raise InvalidArgumentError(
            f"The certificate in {files.cert} is not accepted by those in {files.ca} ({_reason(error)}).",
            hint=f"It has to be signed by one of them, valid today, made out to the DNS name {SERVER_NAME}, and for "
            "servers and clients.",
            field="tls_cert",
        ) from None


def _unreadable(error: OSError) -> InvalidArgumentError:
    return InvalidArgumentError(
        f"{error.filename} cannot be read: {error.strerror}.",
        hint="It is one of the files of TLS: HEADWAY_TLS_CA, HEADWAY_TLS_CERT, HEADWAY_TLS_KEY.",
    )


def _reason(error: Exception) -> str:
    if isinstance(error, ssl.SSLCertVerificationError):
        return error.verify_message
    if isinstance(error, ssl.SSLError) and error.reason:
        return error.reason.lower().replace("_", " ")
    return str(error)
