"""The kernel libraries that are known here, and those of one's own."""

from collections.abc import Callable

from headway.backends.eager import Eager
from headway.backends.headway_kernels import HeadwayKernels
from headway.backends.inductor import Inductor
from headway.backends.library import Library
from headway.backends.onnx_runtime import OnnxRuntime
from headway.backends.openvino import OpenVino
from headway.backends.tensorrt import TensorRt
from headway.core.backend import EAGER, Backend
from headway.core.backend_package import BUILT_IN, BackendPackage, installed_backends
from headway.core.errors import FailedPreconditionError, InvalidArgumentError

_ADAPTERS: dict[str, Callable[[], Library]] = {
    EAGER: Eager,
    "inductor": Inductor,
    "onnxruntime": OnnxRuntime,
    "openvino": OpenVino,
    "headway": HeadwayKernels,
    "tensorrt": TensorRt,
}


class Libraries:
    """The built-in libraries, to which others can be added."""

    def __init__(self) -> None:
        self._known = {package.name: (package, _ADAPTERS[package.name]()) for package in BUILT_IN}

    def add(self, package: BackendPackage, library: Library) -> None:
        """Adds a library of one's own; InvalidArgumentError where there is one of that name."""
        if package.name in self._known:
            raise InvalidArgumentError(
                f"There is a backend '{package.name}' already.", hint="Give it another name.", field="name"
            )
        self._known[package.name] = (package, library)

    def remove(self, name: str) -> None:
        """Offers a library no more."""
        del self._known[name]

    def installed(self) -> tuple[Backend, ...]:
        """Every installed library, once for each precision, with its version."""
        return installed_backends(package for package, _ in self._known.values())

    def library(self, backend: Backend) -> Library:
        """The library of a backend.

        Raises:
            FailedPreconditionError: it is not installed, or in another version than what was planned with.
        """
        package, library = self._known.get(backend.name, (None, None))
        found = None if package is None else package.version
        if library is None or found is None:
            raise FailedPreconditionError(
                f"The backend '{backend.name}' is not installed.",
                hint="Install headway[backends], or plan again: what is missing is not offered.",
                field="backend",
            )
        if backend.version not in ("", found):
            raise FailedPreconditionError(
                f"{backend.name} is here in version {found}, and was planned with {backend.version}.",
                hint="Plan again: its times are others.",
                field="backend",
            )
        return library
