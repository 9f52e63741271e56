"""What is kept of an answer's stream, so that another gateway can go on with it."""

from dataclasses import dataclass

from headway.core.request import SequenceOutput


@dataclass(frozen=True, slots=True, kw_only=True)
class AnswerRecord:
    """Attributes:
    answer_id: that the client knows the answer by.
    tenant: whose it is.
    body_hash: of the request that it answers.
    created_s: when it began, in seconds since 1970.
    outputs: of its sequences in the order in which they came; their `request_id` is the index of the sequence.
    """

    answer_id: str
    tenant: str
    body_hash: str
    created_s: int
    outputs: tuple[SequenceOutput, ...] = ()
