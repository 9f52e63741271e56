"""Settings that every process has. Flags, environment (HEADWAY_*) and file derive from the fields."""

import sys
from pathlib import Path
from typing import Any, Self, TypeVar

import yaml
from pydantic import Field, ValidationError, model_validator
from pydantic_settings import BaseSettings, CliApp, SettingsConfigDict

from headway.core.errors import InvalidArgumentError
from headway.core.tls_files import CERT_VARIABLE, TlsFiles
from headway.rpc.certificates import Certificates
from headway.rpc.credentials import Credentials

C = TypeVar("C", bound="ProcessConfig")

_TOKEN_FLAG = "--auth-token"


class ProcessConfig(BaseSettings):
    """The base class of each service's configuration."""

    model_config = SettingsConfigDict(
        env_prefix="HEADWAY_",
        extra="forbid",
        cli_kebab_case=True,
        cli_implicit_flags=True,
        cli_avoid_json=True,
        cli_hide_none_type=True,
        use_attribute_docstrings=True,
    )

    redis_url: str = "redis://127.0.0.1:6379/0"
    """Where the state is: redis://host:port/db or unix:///path/to/socket."""
    namespace: str = "headway"
    """Prefix of every key, so that several stacks can share one Redis."""
    member_id: str = ""
    """Name under which this process registers; made up from kind and pid when empty."""
    bind_host: str = "127.0.0.1"
    """Address to listen on."""
    advertise_host: str = ""
    """Address that others reach this process at; bind_host when empty."""
    port: int = Field(default=0, ge=0, le=65535)
    """gRPC port; 0 takes a free one (it is registered in Redis)."""
    metrics_port: int = Field(default=0, ge=0, le=65535)
    """Port of /metrics; 0 takes a free one."""
    auth_token: str | None = Field(default=None, min_length=1)
    """Shared secret between the processes; calls without it are refused. None: no check. Not to be given as a flag."""
    auth_hashes: dict[str, str] | None = None
    """Hashes of the tokens of all roles, where auth_token is that of this process's own; None: it is the stack's."""
    auth_token_file: Path | None = None
    """File with the shared secret: `auth-token` in the state directory of `headway up`."""
    tls_ca: Path | None = None
    """PEM file of the authorities by which the other processes' certificates are checked. With it, and the next two,
    all calls between processes are encrypted; each file is read again when it is replaced."""
    tls_cert: Path | None = None
    """PEM file of this process's certificate, made out to the DNS name `headway`."""
    tls_key: Path | None = None
    """PEM file of its private key."""
    log_level: str = "info"
    """debug, info, warning or error."""
    log_json: bool = True
    """JSON lines, or text for people."""
    otlp_endpoint: str | None = None
    """OpenTelemetry collector for traces, e.g. http://127.0.0.1:4317; None turns tracing off."""

    def credentials(self, role: str) -> Credentials | None:
        """Those of this process, of that role; None where calls are not checked."""
        if self.auth_token is None:
            return None
        if self.auth_hashes is None:
            return Credentials.of_stack(self.auth_token, role=role)
        return Credentials(self.auth_token, self.auth_hashes)

    @property
    def tls(self) -> TlsFiles | None:
        """The files of certificates; None where calls are not encrypted."""
        ca, cert, key = (str(path or "") for path in (self.tls_ca, self.tls_cert, self.tls_key))
        return TlsFiles(ca=ca, cert=cert, key=key) if ca or cert or key else None

    def certificates(self) -> Certificates | None:
        """What the files hold, for one end of connections; None where calls are not encrypted."""
        return None if self.tls is None else Certificates(self.tls)

    @model_validator(mode="after")
    def _check_tls(self) -> Self:
        try:
            tls = self.tls
            self.certificates()
        except InvalidArgumentError as error:
            raise ValueError(str(error)) from None
        if tls is not None and not tls.cert:
            raise ValueError(f"{CERT_VARIABLE} is not set: a service needs a certificate of its own")
        return self

    @model_validator(mode="after")
    def _read_token(self) -> Self:
        if self.auth_token is None and self.auth_token_file is not None:
            try:
                self.auth_token = self.auth_token_file.read_text().strip()
            except OSError as error:
                raise ValueError(f"--auth-token-file {self.auth_token_file}: {error.strerror}") from None
            if not self.auth_token:
                raise ValueError(f"--auth-token-file {self.auth_token_file} is empty")
        return self


def parse_config(config_type: type[C], *, prog: str) -> C:
    """Reads flags, environment and `--config FILE` (YAML); on a fault prints what is wrong and exits with 2."""
    arguments = sys.argv[1:]
    if any(argument.partition("=")[0] == _TOKEN_FLAG for argument in arguments):
        print(
            f"{prog}: other users of this machine can read {_TOKEN_FLAG} in the list of processes; "
            f"set HEADWAY_AUTH_TOKEN, or give {_TOKEN_FLAG}-file FILE",
            file=sys.stderr,
        )
        raise SystemExit(2)
    document: dict[str, Any] = {}
    if "--config" in arguments[:-1]:
        at = arguments.index("--config")
        path = Path(arguments[at + 1])
        del arguments[at : at + 2]
        document = _read_file(path, prog=prog)
    try:
        return CliApp.run(config_type, cli_args=arguments, **document)
    except ValidationError as error:
        for fault in error.errors():
            name = ".".join(str(part) for part in fault["loc"])
            print(f"{prog}: {name}: {fault['msg']}", file=sys.stderr)
        raise SystemExit(2) from None


def _read_file(path: Path, *, prog: str) -> dict[str, Any]:
    try:
        document = yaml.safe_load(path.read_text()) or {}
    except (OSError, yaml.YAMLError, ValueError, RecursionError) as error:
        print(f"{prog}: --config {path}: {error}", file=sys.stderr)
        raise SystemExit(2) from None
    if not isinstance(document, dict):
        print(f"{prog}: --config {path}: the file should hold 'name: value' lines", file=sys.stderr)
        raise SystemExit(2)
    return document
