"""Faults that only clients of the gateway meet."""

from headway.core.errors import HeadwayError, InvalidArgumentError, UnavailableError


class ContextLengthError(InvalidArgumentError):
    """The prompt, or the prompt and the output asked for, do not fit the model."""


class WorkerDiedError(UnavailableError):
    """A worker was lost while it had a request."""


class WorkerUnreachableError(UnavailableError):
    """No connection to a worker could be made: it was sent nothing."""


class WorkerLeavingError(UnavailableError):
    """A worker ends in good order, and has computed nothing of what it was sent last."""


class BodyTooLargeError(HeadwayError):
    """The HTTP body is larger than the gateway takes."""
