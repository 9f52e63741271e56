"""What `headway plan backends` says, draws and refuses."""

from pathlib import Path

import pytest
from typer.testing import CliRunner

from headway.cli.app import app
from headway.cli.backends.command import offered
from headway.cli.backends.figure import draw_backends
from headway.cli.backends.view import answer_view, explanation
from headway.core.backend import Backend, BackendPlacement, Engine
from headway.core.backend_search import BackendAnswer, BackendPlan, Finalist, PlannedEngine
from headway.core.errors import InvalidArgumentError
from headway.core.graph import Graph, Operator, OperatorKind, TensorRole, TensorSpec

OPENVINO, EAGER = Backend(name="openvino", version="1"), Backend(name="eager")
PLAN = BackendPlan(
    model="m",
    groups=(
        PlannedEngine(
            operators=("a", "b"), backend=OPENVINO, estimated_s=2e-3, measured_s=1e-3, others={"eager": 5e-3}
        ),
        PlannedEngine(operators=("c",), backend=EAGER, measured_s=1e-4),
    ),
    placement=BackendPlacement(
        engines=(Engine(backend=OPENVINO, positions=(0, 1)), Engine(backend=EAGER, positions=(2,)))
    ),
    chosen_s=1.1e-3,
    eager_s=5e-3,
    predicted_s=2.1e-3,
    op_level_s=1.2e-3,
    single={"eager": 5e-3},
    deviation=2e-6,
    contest=(Finalist(name="the choice", seconds=1.1e-3, least_s=1e-3, num_runs=20, num_contended=3),),
    dropped=("openvino does not run the whole: no such operator",),
)


def test_it_says_why_each_group_is_where_it_is() -> None:
    assert list(explanation(PLAN)) == [
        "Of the backends that run all of m eager is the fastest, 5.0 ms.",
        "The choice takes 1.1 ms, and is wrong by 2.0e-06 at most.",
        "The sum of the best kernels is 2.1 ms; run one after the other they took 1.2 ms.",
        "In the final the choice took 1.1 ms in the median of 20 runs, 1.0 ms at least; 3 were contended and dropped.",
        "2 operators, a to b on openvino take 1.0 ms, by kernels 2.0 ms. Elsewhere: eager 5.0 ms.",
        "c on eager take 100 us. No other backend is known to run them all.",
        "openvino does not run the whole: no such operator.",
    ]


def test_a_turn_of_the_search_is_shown_among_jobs() -> None:
    assert "0 programs measured: kernels" in str(answer_view(BackendAnswer(phase="kernels")))


def test_the_graph_is_drawn_with_a_colour_for_each_backend(tmp_path: Path) -> None:
    path = tmp_path / "graph.svg"
    draw_backends(PLAN, chain("a", "b", "c"), path)
    text = path.read_text()
    assert "#4477aa" in text
    assert "#ee6677" in text


def chain(*names: str) -> Graph:
    tensors = [TensorSpec(name="x", shape=(1,), dtype="float32", role=TensorRole.INPUT)]
    operators = []
    for source, name in zip(("x", *names), names, strict=False):
        tensors.append(TensorSpec(name=name, shape=(1,), dtype="float32", role=TensorRole.ACTIVATION))
        operators.append(
            Operator(
                name=name,
                kind=OperatorKind.ELEMENTWISE,
                target="aten.relu.default",
                inputs=(source,),
                outputs=(name,),
                bytes_read=4,
                bytes_written=4,
            )
        )
    return Graph(name="m", is_training=False, tensors=tuple(tensors), operators=tuple(operators))


def test_bfloat16_is_offered_where_the_error_allows_it() -> None:
    assert {each.precision for each in offered("", max_error=1e-4)} == {"float32"}
    assert {each.name for each in offered("", max_error=1e-4, device="cuda")} == {"eager", "inductor"}
    assert {each.precision for each in offered("openvino", max_error=1e-2)} == {"float32", "bfloat16"}
    assert {each.precision for each in offered("headway", max_error=1e-2)} == {"float32", "bfloat16", "int8"}


def test_a_backend_that_is_not_there_is_refused_with_what_is() -> None:
    with pytest.raises(InvalidArgumentError, match="The backend 'tensorrt' is not installed") as refused:
        offered("eager,tensorrt", max_error=1e-4)
    assert "Installed are eager, headway, inductor, onnxruntime, openvino" in refused.value.hint


@pytest.mark.parametrize(
    ("options", "words"), [(["--max-error", "0"], "max_error"), (["--backends", "x"], "'x' is not")]
)
def test_what_cannot_be_is_refused_before_anything_is_captured(options: list[str], words: str) -> None:
    result = CliRunner().invoke(app, ["plan", "backends", "zoo:dcgan-small", *options])
    assert result.exit_code != 0
    assert words in result.output + str(result.exception)
