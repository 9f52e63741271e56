"""Values that are refused, and how that is told."""

import random
from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.chart import VALUES, try_render


def _places(value: Any, path: tuple[str, ...] = ()) -> Iterator[tuple[str, ...]]:
    """The path of every object whose names are the schema's, in values that use most of it."""
    if isinstance(value, dict):
        if not path or path[-1] not in _THE_USERS_NAMES:
            yield path
            for name, child in value.items():
                yield from _places(child, (*path, name))
    elif isinstance(value, list):
        for index, child in enumerate(value):
            yield from _places(child, (*path, str(index)))


_THE_USERS_NAMES = {"nodeSelector", "matchLabels", "requests", "limits", "labels", "podLabels", "podAnnotations"}


def _documents() -> dict[str, Any]:
    import yaml

    return {name: yaml.safe_load(path.read_text()) for name, path in VALUES.items()}


def _drawn() -> list[tuple[str, tuple[str, ...]]]:
    places = sorted((name, path) for name, document in _documents().items() for path in _places(document))
    rng = random.Random(31)
    deep = [place for place in places if len(place[1]) > 2]
    return sorted(rng.sample(places, 12) + rng.sample(deep, 8))


@pytest.mark.parametrize(
    ("name", "path"), _drawn(), ids=lambda value: value if isinstance(value, str) else ".".join(value)
)
def test_an_unknown_value_is_named_at_any_depth(name: str, path: tuple[str, ...]) -> None:
    document = _documents()[name]
    place = document
    for part in path:
        place = place[int(part)] if isinstance(place, list) else place[part]
    place["replicsa"] = 1
    result = try_render(changes=document)
    assert result.returncode != 0
    assert "replicsa" in result.stderr


_MODEL = {"name": "a", "path": "/models/a"}
_SMALL = {"models": [_MODEL], "modelStorage": {"hostPath": "/srv"}}
_POOL = {"name": "cpu", "cells": 1}
_VLLM = {**_POOL, "engine": "vllm", "image": {"repository": "registry.example/vllm"}}
_SERVER = {**_POOL, "engine": "vllm-server", "engineUrl": "http://a:8000", "engineModel": "a"}


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({}, "workers"),
        ({"workers": []}, "workers"),
        ({"workers": [_POOL], "workerPools": {"enabled": True}}, "declared as resources instead"),
        (
            {"workers": [_POOL], "modelStorage": {"hostPath": "/srv", "fetch": {"enabled": True}}},
            "set modelDeployments.enabled too",
        ),
        ({"workers": [_POOL], "modelStorage": {"fetch": {"ports": [0]}}}, "ports"),
        ({"workers": [], "workerPools": {"enabled": True}}, "set modelDeployments.enabled too"),
        ({"workers": [{"name": "cpu"}]}, "cells"),
        ({"workers": [{"name": "cpu", "cells": "two"}]}, "cells"),
        ({"workers": [{"name": "CPU", "cells": 1}]}, "name"),
        ({"workers": [_POOL, _POOL]}, "two pools have the same name"),
        ({"workers": [{"name": "cpu", "cells": 0}]}, "no pool has a cell"),
        ({"workers": [{**_POOL, "gpusPerCell": 2, "emulate": "V100-16"}]}, "give workersPerCell instead"),
        ({"workers": [_POOL, {"name": "e", "cells": 1, "emulate": "V100-16"}]}, "either all pools emulate"),
        ({"workers": [{**_POOL, "engine": "vllm"}]}, "give an image that has it"),
        ({"workers": [{**_POOL, "engine": "sglang"}]}, "engine"),
        ({"workers": [{**_POOL, "gpusPerCell": 8, "gpusPerWorker": 4}]}, "that is for engine: vllm"),
        ({"workers": [{**_VLLM, "gpusPerCell": 6, "gpusPerWorker": 4}]}, "with a multiple of it as gpusPerCell"),
        ({"workers": [{**_VLLM, "gpusPerWorker": 2}]}, "with a multiple of it as gpusPerCell"),
        ({"workers": [{**_POOL, "engine": "vllm-server", "engineUrl": "http://a"}]}, "give engineUrl and engineModel"),
        ({"workers": [{**_POOL, "engineUrl": "http://a"}]}, "give engine: vllm-server with it"),
        ({"workers": [{**_SERVER, "cells": 2}]}, "one cell with one worker"),
        ({"workers": [_POOL], "limits": {"tp": 2}}, "are 2 workers, and there are 1"),
        ({"workers": [_POOL], "limits": {"prefillWorkers": 1}}, "both, or neither"),
        ({"workers": [_POOL], "models": [{"name": "a", "path": "/elsewhere/a"}]}, "not below modelStorage.mountPath"),
        ({"workers": [_POOL], "models": [{"name": "a", "path": "/models/a"}] * 2}, "two have the same name"),
        ({"workers": [_POOL], "models": []}, "give one, or modelDeployments.enabled"),
        ({"workers": [_POOL], "models": [{**_MODEL, "pools": ["gpu"]}]}, "the pool gpu, which workers does not have"),
        (
            {"workers": [_POOL], "models": [{**_MODEL, "roles": {"prefill": 1, "decode": 1}, "replicas": {"max": 2}}]},
            "leave replicas and parallelism out",
        ),
        ({"workers": [_POOL], "models": [{**_MODEL, "parallelism": {"dp": 2}}]}, "dp"),
        ({"workers": [_POOL], "modelDeployments": {"enabled": True}}, "declared as resources instead"),
        ({"workers": [_POOL], "modelStorage": {"existingClaim": "x", "hostPath": "/srv"}}, "exactly one of"),
        ({"workers": [_POOL], "tls": {"existingSecret": "own"}}, "tls: existingSecret is for enabled"),
        ({"workers": [_POOL], "redis": {"bundled": {"enabled": False}}}, "give external.url"),
        ({"workers": [_POOL], "redis": {"external": {"url": "redis://r:6379"}}}, "both say where Redis is"),
        ({"workers": [_POOL], "redis": {"external": {"url": "redis://:password@r"}}}, "url"),
        ({"workers": [_POOL], "gateway": {"apiKeys": ["k"], "existingKeysSecret": "s"}}, "instead of apiKeys"),
        ({"workers": [_POOL], "queuePolicy": "lifo"}, "queuePolicy"),
    ],
)
def test_contradictions_are_told(changes: dict[str, Any], told: str) -> None:
    result = try_render(changes=_SMALL | changes)
    assert result.returncode != 0
    assert told in result.stderr
