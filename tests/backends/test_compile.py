"""Modules compiled for the backends of this machine, against the module itself."""

from collections.abc import Sequence

import pytest
import torch
from torch import fx, nn

import headway.backends
from headway.backends.compile import Compiler
from headway.backends.library import CompileOptions, Run
from headway.core.backend import Backend, BackendKind, BackendPlacement, Engine
from headway.core.backend_package import BackendPackage
from headway.core.errors import InvalidArgumentError
from headway.planner.backends.pattern import is_op, wildcard

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


@pytest.mark.parametrize("name", ["eager", "inductor", "onnxruntime", "openvino"])
@pytest.mark.parametrize("is_split", [False, True])
def test_each_backend_gives_what_torch_gives(
    module: nn.Module, images: torch.Tensor, name: str, *, is_split: bool
) -> None:
    compiler = Compiler(num_threads=1)
    eager = only().compile(module, [images]).placement
    engine = Engine(backend=eager.engines[0].backend, positions=tuple(at for e in eager.engines for at in e.positions))
    backend = next(each for each in compiler.libraries.installed() if each.name == name)
    half = len(engine.positions) // 2 if is_split else len(engine.positions)
    engines = tuple(
        Engine(backend=backend, positions=some) for some in (engine.positions[:half], engine.positions[half:]) if some
    )
    placement = BackendPlacement(engines=engines, constants=eager.constants)
    compiled = compiler.compile(module, [images], placement=placement)
    other = torch.randn(images.shape, generator=torch.Generator().manual_seed(2))
    for given in (images, other, images):
        close(compiled(given), module(given))


def only(*names: str) -> Compiler:
    compiler = Compiler(num_threads=1, generations=1)
    for name in ("inductor", "onnxruntime", "openvino"):
        if name not in names:
            compiler.libraries.remove(name)
    return compiler


def test_results_outlive_the_next_call(module: nn.Module, images: torch.Tensor) -> None:
    compiled = only("openvino").compile(module, [images])
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
