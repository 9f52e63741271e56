"""A release whose one worker computes: its tokens are transformers', also after the model was unloaded in between."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from headway.client import Client
from tests.cluster.chart import VALUES, objects, render
from tests.cluster.computing import expected_tokens, tokens_of
from tests.cluster.release import Release

_IDLE_S = 3


@pytest.fixture(scope="module")
def release(models: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Release]:
    model = {"name": "tiny", "path": "/models/tiny", "replicas": {"min": 0, "idleSeconds": _IDLE_S}}
    changes = {
        "models": [model],
        "modelStorage": {"hostPath": str(models), "existingClaim": None},
        "workers": [{"name": "cpu", "cells": 1, "threadsPerWorker": 1, "drainSeconds": 5}],
        "limits": {"kvCacheBytes": 32 * 1024**2},
        "profile": False,
    }
    with Release(tmp_path_factory.mktemp("release")) as running:
        running.apply(objects(render(VALUES["small"], changes=changes)))
        running.wait_until_ready()
        yield running


@pytest.fixture(scope="module")
def client(release: Release) -> Iterator[Client]:
    """Of the gateway, with the right to ask for the status."""
    [gateway] = release.of("gateway")
    token = release.secret("headway-auth")["auth-token"]
    with Client(f"{gateway.address}:9000", api_key=token, timeout_s=60) as running:
        yield running


@pytest.fixture(scope="module")
def expected(models: Path) -> list[int]:
    return expected_tokens(models / "tiny")


def test_its_tokens_are_those_of_transformers(client: Client, expected: list[int]) -> None:
    assert tokens_of(client, "tiny") == expected


def test_a_model_that_nobody_asks_for_is_unloaded_and_answers_the_next_request(
    release: Release, client: Client, expected: list[int]
) -> None:
    release.wait(lambda: client.status().controller.asleep == ("tiny",), "it sleeps")
    release.wait(lambda: not any(worker.models for worker in client.status().controller.workers), "it is unloaded")
    assert client.status().controller.ready
    assert tokens_of(client, "tiny") == expected
    assert not client.status().controller.asleep
