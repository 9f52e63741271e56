"""Addresses of a Redis that sentinels watch over: redis+sentinel://HOST:PORT,HOST:PORT/SERVICE."""

from dataclasses import dataclass
from urllib.parse import unquote

from headway.core.errors import InvalidArgumentError

_SCHEMES = {"redis+sentinel": False, "rediss+sentinel": True}
_PORT = 26379


@dataclass(frozen=True, slots=True, kw_only=True)
class SentinelAddress:
    """Where sentinels are, and which of the services that they know is ours.

    Attributes:
        sentinels: host and port of each; they know the present primary.
        service: the name that they have for it.
        username, password: of Redis itself, and of sentinels that ask for them; empty for none.
        has_tls: whether connections are encrypted.
    """

    sentinels: tuple[tuple[str, int], ...]
    service: str
    database: int = 0
    username: str = ""
    password: str = ""
    has_tls: bool = False


def parse_sentinel_url(url: str) -> SentinelAddress | None:
    """The address that a URL of that form means; None for URLs of other forms.

    `[rediss+|redis+]sentinel://[[USER]:PASSWORD@]HOST[:PORT][,HOST[:PORT]...]/SERVICE[/DATABASE]`

    InvalidArgumentError where it names no sentinel or no service, or a port or a database is not a number.
    """
    scheme, found, rest = url.partition("://")
    if not found or scheme not in _SCHEMES:
        return None
    authority, _, path = rest.partition("/")
    login, _, hosts = authority.rpartition("@")
    username, _, password = login.partition(":")
    service, _, database = path.partition("/")
    sentinels = tuple(_sentinel(host) for host in hosts.split(",") if host)
    if not sentinels or not service or (database and not database.isdecimal()):
        raise InvalidArgumentError(
            f"{scheme}://{hosts}/{path} does not name sentinels and a service.",
            hint=f"Write {scheme}://HOST:{_PORT},HOST:{_PORT}/SERVICE.",
            field="redis_url",
        )
    return SentinelAddress(
        sentinels=sentinels,
        service=service,
        database=int(database or 0),
        username=unquote(username),
        password=unquote(password),
        has_tls=_SCHEMES[scheme],
    )


def _sentinel(text: str) -> tuple[str, int]:
    host, colon, port = text.rpartition(":")
    if not colon or text.endswith("]"):  # an IPv6 address without a port
        return text.strip("[]"), _PORT
    if not port.isdecimal() or not host:
        raise InvalidArgumentError(f"'{text}' is no sentinel's address.", hint="Write HOST:PORT.", field="redis_url")
    return host.strip("[]"), int(port)
