"""Captures in a process of their own, over gRPC."""

import json
import math
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import grpc
import pytest

from headway.core.capture import CaptureRequest
from headway.core.codec import to_document
from headway.core.errors import ErrorCode, InvalidArgumentError
from headway.core.graph import Graph
from headway.profiler.capture.capture import capture
from headway.rpc.child import call_child
from headway.rpc.convert import from_pb
from headway.rpc.status import error_from_rpc
from headway.v1 import profiler_pb2
from tests.checkpoints import make_checkpoint


async def test_phases_and_the_graph_are_streamed_and_the_hash_is_that_of_another_process(stub: Any) -> None:
    request = profiler_pb2.CaptureModelRequest(source="zoo:dlrm-small", batch=3, train=True)
    responses = [response async for response in stub.CaptureModel(request, timeout=150)]
    graph = from_pb(responses[-1].graph, Graph)
    here = capture(CaptureRequest(source="zoo:dlrm-small", batch=3, train=True), report=lambda _: None).graph
    assert [response.phase for response in responses[:2]] == ["loading zoo:dlrm-small", "exporting"]
    assert graph == here
    assert graph.content_hash == here.content_hash


async def test_faults_keep_their_code_and_what_users_print_is_no_answer(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As commands capture: in a process of the caller's."""
    (tmp_path / "loud.py").write_text("def f():\n    print('a line')\n    raise RuntimeError('no such weights')\n")
    monkeypatch.chdir(tmp_path)
    request = to_document(CaptureRequest(source="loud:f"))
    with pytest.raises(InvalidArgumentError, match=r"RuntimeError \(loud\.py:3\): no such weights"):
        [_ async for _ in call_child("headway.profiler.capture", request, deadline_s=150)]


def test_a_name_that_the_zoo_lacks_is_told_before_torch_is_imported() -> None:
    request = json.dumps(to_document(CaptureRequest(source="zoo:gpt9")))
    command = [sys.executable, "-X", "importtime", "-m", "headway.profiler.capture"]
    result = subprocess.run(command, input=request, capture_output=True, text=True, timeout=60, check=True)
    assert "The zoo has no model 'gpt9'" in result.stdout
    imported = re.findall(r"\| +([\w.]+)$", result.stderr, re.MULTILINE)
    assert "headway.core.capture" in imported
    assert "torch" not in imported


async def test_a_service_never_runs_its_callers_code(
    stub: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "evil.py").write_text("import pathlib\npathlib.Path('ran').touch()\ndef f():\n    pass\n")
    monkeypatch.chdir(tmp_path)
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [_ async for _ in stub.CaptureModel(profiler_pb2.CaptureModelRequest(source="evil:f", batch=1), timeout=150)]
    error = error_from_rpc(caught.value)
    assert (error.code, error.field) == (ErrorCode.INVALID_ARGUMENT, "source")
    assert "its caller's own process" in error.message
    assert "headway profile model evil:f" in error.hint
    assert not (tmp_path / "ran").exists()


async def test_a_service_captures_checkpoint_directories(stub: Any, tmp_path: Path) -> None:
    directory = make_checkpoint(tmp_path / "with:colon", "llama")
    request = profiler_pb2.CaptureModelRequest(source=str(directory), batch=1, seq=8)
    responses = [response async for response in stub.CaptureModel(request, timeout=150)]
    assert responses[-1].graph.operators


@pytest.mark.parametrize(
    ("fields", "field"),
    [
        ({"batch": 0}, "batch"),
        ({"batch": 1, "seq": 0}, "seq"),
        *(({"batch": 1, "deadline_s": deadline_s}, "deadline_s") for deadline_s in (-1, math.nan, math.inf)),
    ],
)
async def test_a_request_that_makes_no_sense_is_refused(stub: Any, fields: dict[str, Any], field: str) -> None:
    with pytest.raises(grpc.aio.AioRpcError) as caught:
        [_ async for _ in stub.CaptureModel(profiler_pb2.CaptureModelRequest(source="zoo:dlrm-small", **fields))]
    assert error_from_rpc(caught.value).field == field
