"""Faults that a caller can do something about.

Every error carries a `code` (how a transport reports it), a `message` (what is wrong, naming the field) and a
`hint` (what to do). `headway.rpc` turns the code into a gRPC status, the gateway into an HTTP status.
"""

from enum import StrEnum


class ErrorCode(StrEnum):
    """Transport-neutral error kinds; the names follow the gRPC status codes."""

    INVALID_ARGUMENT = "invalid_argument"
    NOT_FOUND = "not_found"
    ALREADY_EXISTS = "already_exists"
    FAILED_PRECONDITION = "failed_precondition"
    RESOURCE_EXHAUSTED = "resource_exhausted"
    UNAUTHENTICATED = "unauthenticated"
    PERMISSION_DENIED = "permission_denied"
    DEADLINE_EXCEEDED = "deadline_exceeded"
    UNAVAILABLE = "unavailable"
    CANCELLED = "cancelled"
    INTERNAL = "internal"


class HeadwayError(Exception):
    """A fault with a code, a message, a hint, and optionally the offending field and a delay before a retry.

    Attributes:
        code: the kind of fault.
        message: what is wrong, in one sentence.
        hint: what the caller can do; may be empty.
        field: the name of the offending request or configuration field; may be empty.
        retry_after_s: seconds after which a retry may succeed, if known.
    """

    code = ErrorCode.INTERNAL

    def __init__(self, message: str, *, hint: str = "", field: str = "", retry_after_s: float | None = None) -> None:
        super().__init__(message)
        self.message = message
        self.hint = hint
        self.field = field
        self.retry_after_s = retry_after_s

    def __str__(self) -> str:
        return f"{self.message} {self.hint}".strip()


class InvalidArgumentError(HeadwayError):
    code = ErrorCode.INVALID_ARGUMENT


class NotFoundError(HeadwayError):
    code = ErrorCode.NOT_FOUND


class AlreadyExistsError(HeadwayError):
    code = ErrorCode.ALREADY_EXISTS


class FailedPreconditionError(HeadwayError):
    code = ErrorCode.FAILED_PRECONDITION


class ResourceExhaustedError(HeadwayError):
    code = ErrorCode.RESOURCE_EXHAUSTED


class UnauthenticatedError(HeadwayError):
    code = ErrorCode.UNAUTHENTICATED


class PermissionDeniedError(HeadwayError):
    code = ErrorCode.PERMISSION_DENIED


class DeadlineExceededError(HeadwayError):
    code = ErrorCode.DEADLINE_EXCEEDED


class UnavailableError(HeadwayError):
    code = ErrorCode.UNAVAILABLE


class CancelledError(HeadwayError):
    code = ErrorCode.CANCELLED


class InternalError(HeadwayError):
    code = ErrorCode.INTERNAL


ERROR_BY_CODE: dict[ErrorCode, type[HeadwayError]] = {
    cls.code: cls
    for cls in (
        InvalidArgumentError,
        NotFoundError,
        AlreadyExistsError,
        FailedPreconditionError,
        ResourceExhaustedError,
        UnauthenticatedError,
        PermissionDeniedError,
        DeadlineExceededError,
        UnavailableError,
        CancelledError,
        InternalError,
    )
}
