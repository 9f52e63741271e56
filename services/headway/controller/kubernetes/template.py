"""Files of what all pods of a kind have in common, which the chart writes and the controller completes."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from headway.core.errors import InvalidArgumentError


@contextmanager
def reading_template(path: Path, *, of: str, has: str, field: str) -> Iterator[Any]:
    """Yields what a YAML file says; InvalidArgumentError where it is none, or not what is looked for in it.

    Args:
        of: what it is a template of.
        has: what there is in such a file.
        field: the setting that names the file.
    """
    try:
        yield yaml.safe_load(path.read_text())
    except (OSError, yaml.YAMLError, TypeError, KeyError, ValueError) as error:
        raise InvalidArgumentError(
            f"{path} is no template of {of}: {error!r}.", hint=f"It has {has}.", field=field
        ) from None


def container_of(pod: Mapping[str, Any], name: str) -> dict[str, Any]:
    """The container of that name in a pod's spec; ValueError where there is not one."""
    [container] = [each for each in pod["containers"] if each["name"] == name]
    found: dict[str, Any] = container
    return found
