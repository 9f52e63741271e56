"""Answers of a gateway, held against the document that it serves of its API."""

from typing import Any

import schemathesis
from schemathesis.checks import not_a_server_error
from schemathesis.core.transport import Response
from schemathesis.specs.openapi.checks import (
    content_type_conformance,
    response_schema_conformance,
    status_code_conformance,
)

ANSWERED_WITHIN_S = 60
_CHECKS: list[Any] = [
    not_a_server_error,
    status_code_conformance,
    content_type_conformance,
    response_schema_conformance,
]


def document_of(url: str) -> Any:
    """The document of the gateway at a URL, by which schemathesis makes requests."""
    return schemathesis.openapi.from_url(f"{url}/openapi.json")


def answer_of(case: schemathesis.Case) -> Response:
    """The answer to a request, which comes in time, as the document says and not of a fault of the server."""
    response = case.call(timeout=ANSWERED_WITHIN_S)
    case.validate_response(response, checks=_CHECKS)
    return response


def post(document: Any, path: str, body: dict[str, Any]) -> Response:
    """The answer to a body, likewise."""
    return answer_of(document[path]["POST"].Case(body=body, media_type="application/json"))
