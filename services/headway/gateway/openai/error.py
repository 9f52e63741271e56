"""Formats errors in the OpenAI API's shape."""

import math
from typing import Any

import orjson

from headway.core.errors import ErrorCode, HeadwayError
from headway.gateway.errors import BodyTooLargeError, ContextLengthError

# HTTP status, and the API's `type` and `code`.
_Kind = tuple[int, str, str | None]

_KIND_BY_CODE: dict[ErrorCode, _Kind] = {
    ErrorCode.INVALID_ARGUMENT: (400, "invalid_request_error", None),
    ErrorCode.FAILED_PRECONDITION: (400, "invalid_request_error", "failed_precondition"),
    ErrorCode.UNAUTHENTICATED: (401, "invalid_request_error", "invalid_api_key"),
    ErrorCode.PERMISSION_DENIED: (403, "invalid_request_error", "permission_denied"),
    ErrorCode.NOT_FOUND: (404, "invalid_request_error", "not_found"),
    ErrorCode.ALREADY_EXISTS: (409, "invalid_request_error", "already_exists"),
    ErrorCode.RESOURCE_EXHAUSTED: (429, "rate_limit_error", "rate_limit_exceeded"),
    ErrorCode.CANCELLED: (499, "server_error", "cancelled"),
    ErrorCode.INTERNAL: (500, "server_error", "internal_error"),
    ErrorCode.UNAVAILABLE: (503, "server_error", "service_unavailable"),
    ErrorCode.DEADLINE_EXCEEDED: (504, "server_error", "timeout"),
}
_KIND_BY_STATUS: dict[int, _Kind] = {
    404: (404, "invalid_request_error", "unknown_url"),
    405: (405, "invalid_request_error", "method_not_supported"),
}
_DEFAULT_RETRY_S = {429: 1.0, 503: 1.0}


def kind_of(error: HeadwayError) -> _Kind:
    if isinstance(error, BodyTooLargeError):
        return (413, "invalid_request_error", "request_too_large")
    if isinstance(error, ContextLengthError):
        return (400, "invalid_request_error", "context_length_exceeded")
    if error.code is ErrorCode.NOT_FOUND and error.field == "model":
        return (404, "invalid_request_error", "model_not_found")
    return _KIND_BY_CODE[error.code]


def error_body(error: HeadwayError) -> bytes:
    """`{"error": {"message", "type", "param", "code"}}`"""
    _, type_, code = kind_of(error)
    return _body(str(error), type_=type_, param=error.field or None, code=code)


def error_headers(error: HeadwayError) -> dict[str, str]:
    """`Retry-After` in whole seconds, where a retry may help."""
    status = kind_of(error)[0]
    retry_after_s = error.retry_after_s if error.retry_after_s is not None else _DEFAULT_RETRY_S.get(status)
    return {} if retry_after_s is None else {"retry-after": str(max(1, math.ceil(retry_after_s)))}


def status_body(status: int, message: str) -> bytes:
    """Returns the body for a fault of HTTP itself, such as an unknown path."""
    _, type_, code = _KIND_BY_STATUS.get(status, (status, "invalid_request_error", None))
    return _body(message, type_=type_, param=None, code=code)


def _body(message: str, *, type_: str, param: str | None, code: str | None) -> bytes:
    error: dict[str, Any] = {"message": message, "type": type_, "param": param, "code": code}
    return orjson.dumps({"error": error})
