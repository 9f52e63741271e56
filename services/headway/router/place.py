"""A place where a model is served."""

from typing import TypeAlias

Place: TypeAlias = tuple[str, str]
"""A group, and one of its models."""
