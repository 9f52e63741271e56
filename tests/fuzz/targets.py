"""All targets."""

from tests.fuzz import files, messages, requests
from tests.fuzz.target import TARGETS

__all__ = ["TARGETS", "files", "messages", "requests"]
