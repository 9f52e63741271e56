"""Which distributions the backends are in, and what is installed of them."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from importlib.metadata import PackageNotFoundError, version

from headway.core.backend import EAGER, Backend, BackendKind

FLOAT32 = "float32"
BFLOAT16 = "bfloat16"
INT8 = "int8"
"""Of weights; what they are multiplied with is float32, bfloat16 or rounded too, as the library has it."""


@dataclass(frozen=True, slots=True, kw_only=True)
class BackendPackage:
    """A kernel library as a package.

    Attributes:
        package: the distribution whose version its times depend on.
        precisions: that it can compute products in.
        devices: that it computes on.
        serves: whether its programs take inputs of any length, as the batches of a served encoder are.
    """

    name: str
    package: str
    kind: BackendKind = BackendKind.GRAPH
    precisions: tuple[str, ...] = (FLOAT32,)
    devices: tuple[str, ...] = ("cpu",)
    serves: bool = False

    @property
    def version(self) -> str | None:
        """None where it is not installed."""
        try:
            return version(self.package)
        except PackageNotFoundError:
            return None

    def backends(self) -> Iterator[Backend]:
        """The library, once for each precision; none where it is not installed."""
        found = self.version
        for precision in self.precisions if found is not None else ():
            yield Backend(name=self.name, version=found or "", kind=self.kind, precision=precision)


BUILT_IN = (
    BackendPackage(
        name=EAGER,
        package="torch",
        kind=BackendKind.OPERATORS,
        precisions=(FLOAT32, BFLOAT16),
        devices=("cpu", "cuda"),
    ),
    BackendPackage(name="inductor", package="torch", precisions=(FLOAT32, BFLOAT16), devices=("cpu", "cuda")),
    BackendPackage(name="onnxruntime", package="onnxruntime", precisions=(FLOAT32, INT8), serves=True),
    BackendPackage(name="openvino", package="openvino", precisions=(FLOAT32, BFLOAT16), serves=True),
    BackendPackage(name="headway", package="headway", kind=BackendKind.OPERATORS, precisions=(FLOAT32, BFLOAT16, INT8)),
    BackendPackage(name="tensorrt", package="torch-tensorrt", devices=("cuda",)),
)
"""The libraries that Headway has an adapter for."""


def installed_backends(packages: Iterable[BackendPackage] = BUILT_IN) -> tuple[Backend, ...]:
    """What can be offered of some packages."""
    return tuple(backend for package in packages for backend in package.backends())
