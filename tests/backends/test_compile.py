"""Modules compiled for the backends of this machine, against the module itself."""

import copy
from collections.abc import Sequence

import pytest
import torch
from torch import fx, nn

import headway.backends
from headway.backends.compile import CompiledModule, Compiler
from headway.backends.library import CompileOptions, Run
from headway.core.backend import Backend, BackendKind, BackendPlacement, Engine
from headway.core.backend_package import BackendPackage
from headway.core.backend_search import CandidatePrograms
from headway.core.errors import InvalidArgumentError
from headway.planner.backends.pattern import is_op, wildcard
from headway.profiler.capture.graph import build_graph
from headway.profiler.capture.program import build_program
from headway.profiler.capture.trace import trace

MINE = BackendPackage(name="mine", package="torch", kind=BackendKind.OPERATORS)


class Residual(nn.Module):
    """Convolutions with a shortcut: two branches that meet, several results, and a view at the end."""

    def __init__(self) -> None:
        super().__init__()
        torch.manual_seed(3)
        self.first = nn.Conv2d(3, 8, 3, padding=1)
        self.norm = nn.BatchNorm2d(8)
        self.second = nn.Conv2d(8, 8, 3, padding=1)
        self.last = nn.Linear(8, 4)
        with torch.no_grad():
            for tensor in (self.norm.running_mean, self.norm.bias):
                tensor.uniform_(-1, 1)
            for tensor in (self.norm.running_var, self.norm.weight):
                tensor.uniform_(0.5, 2)

    def forward(self, images: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
        begun = torch.relu(self.norm(self.first(images)))
        pooled = (begun + self.second(begun)).mean((2, 3))
        return self.last(pooled), pooled.transpose(0, 1)


class Recorded:
    """Runs torch, and counts its engines."""

    def __init__(self, *, shift: float = 0.0) -> None:
        self.operators: list[list[str]] = []
        self._shift = shift

    def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
        calls = [node for node in module.graph.nodes if node.op == "call_function"]
        self.operators.append([str(node.target) for node in calls])
        return lambda *tensors: tuple(given + self._shift for given in module(*tensors))


@pytest.fixture
def images() -> torch.Tensor:
    return torch.randn(2, 3, 8, 8, generator=torch.Generator().manual_seed(1))


@pytest.fixture(scope="module")
def module() -> nn.Module:
    return Residual().eval()


def close(found: object, expected: Sequence[torch.Tensor]) -> None:
    assert isinstance(found, tuple)
    for one, other in zip(found, expected, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


def on(name: str, module: nn.Module, example: torch.Tensor, *, num_engines: int = 1) -> CompiledModule:
    """The module on one backend, as a whole or in parts that follow each other."""
    compiler = Compiler(num_threads=1)
    backend = next(each for each in compiler.libraries.installed() if str(each) == name)
    traced = trace(copy.deepcopy(module), [example], train=False, report=lambda _: None)
    graph = build_graph(traced, name="m", is_training=False, batch=len(example))
    programs = CandidatePrograms(graph, build_program(traced))
    positions, size = programs.parts.operators, -(-len(programs.parts.operators) // num_engines)
    parts = [positions[first : first + size] for first in range(0, len(positions), size)]
    engines = tuple(Engine(backend=backend, positions=some) for some in parts)
    placement = BackendPlacement(engines=engines, constants=programs.constants)
    return compiler.compile(module, [example], placement=placement)


@pytest.mark.parametrize("name", ["eager", "inductor", "onnxruntime", "openvino"])
@pytest.mark.parametrize("is_split", [False, True])
def test_each_backend_gives_what_torch_gives(
    module: nn.Module, images: torch.Tensor, name: str, *, is_split: bool
) -> None:
    compiled = on(name, module, images, num_engines=2 if is_split else 1)
    other = torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    for given in (images, other, images):
        close(compiled(given), module(given))


@pytest.mark.parametrize(
    ("name", "least", "most"),
    [
        ("headway", 0.0, 1e-5),
        ("headway-bfloat16", 1e-5, 1e-2),
        ("headway-int8", 1e-5, 2e-2),
        ("eager-bfloat16", 0.0, 1e-2),  # exact where a processor lacks the instructions
        ("openvino-bfloat16", 0.0, 1e-2),
        ("onnxruntime-int8", 1e-5, 2e-2),
    ],
)
def test_a_variant_is_as_wrong_as_its_precision(name: str, least: float, most: float) -> None:
    torch.manual_seed(5)
    module = nn.Sequential(nn.Linear(64, 96), nn.GELU(), nn.Linear(96, 32)).eval()
    rows = torch.randn(5, 64)
    compiled = on(name, module, rows)
    with torch.no_grad():
        expected = module(rows)
        found = compiled(rows)
        assert isinstance(found, torch.Tensor)
        assert found.dtype == torch.float32
        assert least <= float((found - expected).abs().max() / expected.abs().max()) <= most
        torch.testing.assert_close(module(rows), expected, rtol=1e-6, atol=1e-6)  # torch itself computes as before


def test_a_library_without_anything_to_do_says_so(module: nn.Module, images: torch.Tensor) -> None:
    convolutions = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU()).eval()
    compiler = only("headway")
    compiled = compiler.compile(convolutions, [images])
    assert compiled.plan is not None
    assert any("headway does not run the whole" in reason for reason in compiled.plan.dropped)
    assert any("no product with a constant weight" in reason for reason in compiled.plan.dropped)


def only(*names: str) -> Compiler:
    compiler = Compiler(num_threads=1, generations=1)
    for name in ("inductor", "onnxruntime", "openvino", "headway"):
        if name not in names:
            compiler.libraries.remove(name)
    return compiler


def test_results_outlive_the_next_call(module: nn.Module, images: torch.Tensor) -> None:
    compiled = on("openvino", module, images)
    first = compiled(images)
    kept = [given.clone() for given in first]
    compiled(images * 2)
    close(first, kept)


def test_what_was_measured_is_not_measured_again(module: nn.Module, images: torch.Tensor) -> None:
    compiler = only()
    mine = Recorded()
    compiler.add_backend(MINE, mine)
    compiler.add_backend_pattern("mine", is_op("relu")(wildcard()), name="relu")
    first = compiler.compile(module, [images])
    compiled, costs = len(mine.operators), dict(compiler.costs)
    second = compiler.compile(module, [images])
    assert compiler.costs == costs
    assert second.placement == first.placement
    assert len(mine.operators) - compiled <= len(second.placement.engines)


def test_a_registered_pattern_is_offered_as_one_kernel(module: nn.Module, images: torch.Tensor) -> None:
    compiler = only()
    mine = Recorded()
    compiler.add_backend(MINE, mine)
    compiler.add_backend_pattern("mine", is_op("relu")(is_op("native_batch_norm")(wildcard())), name="norm-relu")
    close(compiler.compile(module, [images])(images), module(images))
    assert ["aten.native_batch_norm.default", "<built-in function getitem>", "aten.relu.default"] in mine.operators


def test_a_wrong_backend_is_dropped_and_named(module: nn.Module, images: torch.Tensor) -> None:
    compiler = only()
    compiler.add_backend(MINE, Recorded(shift=0.01))
    compiler.add_backend_pattern("mine", is_op("relu"), name="relu")
    compiled = compiler.compile(module, [images])
    assert compiled.plan is not None
    assert {str(engine.backend) for engine in compiled.placement.engines} == {"eager"}
    assert any("mine is wrong by" in reason for reason in compiled.plan.dropped)


def test_a_backend_that_fails_is_named_with_its_reason(module: nn.Module, images: torch.Tensor) -> None:
    class Broken:
        def compile(self, module: fx.GraphModule, inputs: Sequence[torch.Tensor], options: CompileOptions) -> Run:
            raise RuntimeError("no such kernel")

    compiler = only()
    compiler.add_backend(MINE, Broken())
    compiled = compiler.compile(module, [images])
    assert compiled.plan is not None
    assert "mine does not run the whole: RuntimeError: no such kernel" in compiled.plan.dropped
    close(compiled(images), module(images))


def test_a_backend_that_is_gone_is_named_and_the_choice_made_anew(module: nn.Module, images: torch.Tensor) -> None:
    placement = only().compile(module, [images]).placement
    gone = Backend(name="gone", version="1.0")
    engines = tuple(Engine(backend=gone, positions=engine.positions) for engine in placement.engines)
    missing = BackendPlacement(engines=engines, constants=placement.constants)
    with pytest.warns(UserWarning, match="'gone' is not installed.*made anew"):
        compiled = only().compile(module, [images], placement=missing)
    close(compiled(images), module(images))


def test_other_shapes_run_through_the_module(module: nn.Module, images: torch.Tensor) -> None:
    compiled = only().compile(module, [images])
    close(compiled(images[:1]), module(images[:1]))


def test_a_name_that_is_taken_is_refused() -> None:
    with pytest.raises(InvalidArgumentError, match="There is a backend 'openvino' already"):
        Compiler().add_backend(BackendPackage(name="openvino", package="torch"), Recorded())


def test_the_public_names_are_found_and_others_are_not() -> None:
    assert headway.backends.Compiler is Compiler
    with pytest.raises(AttributeError, match="has no 'fast'; it has compile, Compiler"):
        _ = headway.backends.fast
