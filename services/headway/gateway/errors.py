"""Faults that only clients of the gateway meet."""

from headway.core.errors import HeadwayError, InvalidArgumentError


class ContextLengthError(InvalidArgumentError):
    """The prompt, or the prompt and the output asked for, do not fit the model."""


class BodyTooLargeError(HeadwayError):
    """The HTTP body is larger than the gateway takes."""
