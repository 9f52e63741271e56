"""The files by which processes know each other, where calls between them are encrypted."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from headway.core.errors import InvalidArgumentError

CA_VARIABLE = "HEADWAY_TLS_CA"
CERT_VARIABLE = "HEADWAY_TLS_CERT"
KEY_VARIABLE = "HEADWAY_TLS_KEY"


@dataclass(frozen=True, slots=True, kw_only=True)
class TlsFiles:
    """Paths of PEM files. Every process has all three; a client of the gateway may have the first alone.

    Attributes:
        ca: certificates of the authorities that others' are checked by; several while one takes another's place.
        cert: the own certificate, and those between it and an authority.
        key: its private key, not encrypted.

    Raises:
        InvalidArgumentError: one is missing.
    """

    ca: str
    cert: str = ""
    key: str = ""

    def __post_init__(self) -> None:
        for path, variable, other in (
            (self.ca, CA_VARIABLE, CERT_VARIABLE),
            (self.cert or not self.key, CERT_VARIABLE, KEY_VARIABLE),
            (self.key or not self.cert, KEY_VARIABLE, CERT_VARIABLE),
        ):
            if not path:
                raise InvalidArgumentError(
                    f"{variable} is not set, and {other} is.",
                    hint="Name the files of the authority, the certificate and its key, or none.",
                    field=variable,
                )

    @classmethod
    def of_environment(cls, environment: Mapping[str, str]) -> Self | None:
        """The files that the variables name; None where they name none."""
        ca, cert, key = (environment.get(name, "") for name in (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE))
        return cls(ca=ca, cert=cert, key=key) if ca or cert or key else None

    @property
    def environment(self) -> dict[str, str]:
        """The variables that name them."""
        variables = {CA_VARIABLE: self.ca, CERT_VARIABLE: self.cert, KEY_VARIABLE: self.key}
        return {name: path for name, path in variables.items() if path}


def without_tls(environment: Mapping[str, str]) -> dict[str, str]:
    """An environment for processes that only their parent calls, over loopback."""
    names = (CA_VARIABLE, CERT_VARIABLE, KEY_VARIABLE)
    return {name: value for name, value in environment.items() if name not in names}
