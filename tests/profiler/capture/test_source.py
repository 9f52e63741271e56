"""What users name, loaded; and faults that say what is wrong with it."""

import sys
from pathlib import Path
from typing import Any

import pytest

from headway.core.capture import CaptureRequest
from headway.core.errors import HeadwayError, InvalidArgumentError, NotFoundError
from headway.core.graph import Graph
from headway.profiler.capture.capture import capture

MODELS = """
import torch
from torch import nn

def mlp(batch, train=False):
    print("a line that is no answer")
    layers = nn.Sequential(nn.Linear(8, 16), nn.ReLU(), nn.Linear(16, 4))
    return layers, (torch.randn(batch, 8),)

def language():
    return nn.Embedding(10, 4)

def raises():
    raise RuntimeError("no such weights")

def number():
    return 7

class Branch(nn.Module):
    def forward(self, x):
        return x if x.sum().item() > 0 else -x

class Outer(nn.Module):
    def __init__(self):
        super().__init__()
        self.inner = nn.Sequential(nn.Linear(4, 4), Branch())

    def forward(self, x):
        return self.inner(x)

def branching():
    return Outer(), torch.randn(2, 4)

def frozen():
    return nn.Linear(4, 4).requires_grad_(False), torch.randn(2, 4)

constant = 3
"""


@pytest.fixture(autouse=True)
def models(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """`usermodels` and broken modules, in the directory that captures run in."""
    (tmp_path / "usermodels.py").write_text(MODELS)
    (tmp_path / "broken.py").write_text("import nothing_of_this_name\n")
    (tmp_path / "syntax.py").write_text("def f(:\n")
    monkeypatch.chdir(tmp_path)
    monkeypatch.syspath_prepend(str(tmp_path))
    monkeypatch.delitem(sys.modules, "usermodels", raising=False)


def run(source: str, **options: Any) -> tuple[list[str], Graph]:
    """The phases and the graph."""
    phases: list[str] = []
    graph = capture(CaptureRequest(source=source, **options), report=phases.append).graph
    return phases, graph


def test_a_factory_is_captured_with_the_batch_that_it_takes() -> None:
    phases, graph = run("usermodels:mlp", batch=3)
    assert graph.flops == 2 * 3 * (8 * 16 + 16 * 4)
    assert phases[:2] == ["loading usermodels:mlp", "exporting"]


def test_a_lone_module_gets_token_ids() -> None:
    _, graph = run("usermodels:language", batch=2, seq=5)
    assert [tensor.shape for tensor in graph.tensors if tensor.role == "input"] == [(2, 5)]


@pytest.mark.parametrize(
    ("source", "options", "kind", "message"),
    [
        ("usermodels:nothing", {}, NotFoundError, "usermodels has no 'nothing'. It has .*mlp"),
        ("nosuchmodule:f", {}, NotFoundError, "no Python module nosuchmodule"),
        (
            "broken:f",
            {},
            InvalidArgumentError,
            r"broken raised ModuleNotFoundError \(broken.py:1\).*nothing_of_this_name",
        ),
        ("syntax:f", {}, InvalidArgumentError, "syntax raised SyntaxError"),
        ("no/such/directory", {}, NotFoundError, "no file or directory no/such/directory"),
        (".", {}, NotFoundError, "config.json is missing"),
        ("zoo:gpt3-17b", {}, InvalidArgumentError, "no model 'gpt3-17b'. Did you mean"),
        ("usermodels:raises", {}, InvalidArgumentError, r"RuntimeError \(usermodels.py:14\): no such weights"),
        ("usermodels:number", {}, InvalidArgumentError, "gave int, which is no module. A factory returns"),
        ("usermodels:constant", {}, InvalidArgumentError, "is no function but int"),
        ("usermodels:branching", {}, InvalidArgumentError, r"inner.1 \(Branch, usermodels.py:\d+\) does not export"),
        ("usermodels:frozen", {"train": True}, InvalidArgumentError, "nothing to train"),
    ],
)
def test_faults_say_what_is_wrong(source: str, options: dict[str, Any], kind: type[HeadwayError], message: str) -> None:
    with pytest.raises(kind, match=message) as caught:
        run(source, **options)
    assert caught.value.hint or kind is InvalidArgumentError


@pytest.mark.parametrize("field", ["batch", "seq"])
def test_an_empty_request_is_refused(field: str) -> None:
    with pytest.raises(InvalidArgumentError, match=f"{field} must be 1 or more"):
        CaptureRequest(source="x:y", **{field: 0})
