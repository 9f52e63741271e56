"""A server that answers by a script."""

from collections.abc import Iterator

import pytest

from tests.client.scripted import ScriptedService, serving


@pytest.fixture
def service() -> ScriptedService:
    return ScriptedService()


@pytest.fixture
def endpoint(service: ScriptedService) -> Iterator[str]:
    with serving(service) as endpoint:
        yield endpoint
