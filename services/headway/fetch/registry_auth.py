"""Says to a registry of images who asks: by name and password, or by a token that it has somebody else give out."""

import base64
import binascii
import json
import os
import re
from collections.abc import Generator
from pathlib import Path

import httpx

from headway.core.errors import InvalidArgumentError, PermissionDeniedError

_FIELD = re.compile(r'(\w+)="([^"]*)"')


class RegistryAuth(httpx.Auth):
    """Asks as anybody first, and as the account of Docker's configuration where the registry wants to know.

    Args:
        account: name and password; None for nobody's.
    """

    def __init__(self, account: tuple[str, str] | None) -> None:
        self._account = account
        self._told = ""  # in the header of every request, once the registry has asked

    def sync_auth_flow(self, request: httpx.Request) -> Generator[httpx.Request, httpx.Response, None]:
        if self._told:
            request.headers["authorization"] = self._told
        answer = yield request
        if answer.status_code != httpx.codes.UNAUTHORIZED:
            return
        kind, _, rest = answer.headers.get("www-authenticate", "").partition(" ")
        challenge = dict(_FIELD.findall(rest))
        if kind.lower() == "bearer" and "realm" in challenge:
            given = yield self._token_request(challenge)
            if not given.is_success:
                return
            try:
                token = json.loads(given.read())
                self._told = f"Bearer {token.get('token') or token['access_token']}"
            except (ValueError, KeyError, AttributeError):
                raise PermissionDeniedError(
                    f"{challenge['realm']} was to give a token for the registry, and answers something else.",
                    hint="Does a proxy answer in its place?",
                ) from None
        elif kind.lower() == "basic" and self._account:
            self._told = _basic(self._account)
        else:
            return
        request.headers["authorization"] = self._told
        yield request

    def _token_request(self, challenge: dict[str, str]) -> httpx.Request:
        told = {name: value for name, value in challenge.items() if name in ("service", "scope")}
        headers = {"authorization": _basic(self._account)} if self._account else {}
        return httpx.Request("GET", challenge["realm"], params=told, headers=headers)


def read_account(registry: str) -> tuple[str, str] | None:
    """Name and password for a registry in Docker's configuration; None where it has none.

    InvalidArgumentError where that is no such file.
    """
    path = Path(os.environ.get("DOCKER_CONFIG") or Path.home() / ".docker") / "config.json"
    if not path.is_file():
        return None
    try:
        accounts = json.loads(path.read_text()).get("auths", {})
        told = next((accounts[each] for each in (registry, f"https://{registry}") if each in accounts), None)
        if not told:
            return None
        if "auth" not in told:
            return str(told["username"]), str(told["password"])
        name, _, password = base64.b64decode(told["auth"]).decode().partition(":")
    except (OSError, ValueError, KeyError, TypeError, AttributeError, binascii.Error) as error:
        raise InvalidArgumentError(
            f"{path} says nothing of {registry} that can be read: {error!r}.",
            hint="It has auths, and for each registry auth, or username and password.",
        ) from None
    return name, password


def _basic(account: tuple[str, str]) -> str:
    return f"Basic {base64.b64encode(':'.join(account).encode()).decode()}"
