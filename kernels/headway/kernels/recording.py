"""Records kernels of the CPU once and runs them again in one call: the interpreter does not come between them.

A step of a small model is a hundred calls of a tenth of a millisecond. Between any two the interpreter takes some 10 us
in which one core works, and its lock, for which another thread may keep it waiting.
"""

from collections import Counter
from collections.abc import Callable, Sequence
from ctypes import Array, Structure, addressof, c_char, c_int64, c_void_p, cast, create_string_buffer
from itertools import accumulate
from struct import Struct
from typing import Any

from torch import Tensor
from torch.utils._python_dispatch import TorchDispatchMode
from torch.utils._pytree import tree_leaves

from headway.kernels.arena import Arena
from headway.kernels.cpu import default_kernels
from headway.kernels.tape import Launch, Tape, taping

_pack_replay = Struct("P2q").pack  # as in csrc/cpu/replay.cpp


class UnrecordedOperatorError(Exception):
    """Raised where a function to be recorded computes with something else than these kernels."""


class _Step(Structure):
    _fields_ = (("kernel", c_void_p), ("operands", c_void_p), ("elapsed_ns", c_int64))  # as in csrc/cpu/replay.cpp


class Recording:
    """A sequence of kernel calls. They read and write the tensors that they were recorded with, which must be kept.

    Attributes:
        results: what each recorded part returned, a tensor or several; they hold what the last `run` computed, until
            another recording with the same arena runs.
        is_timed: whether `run` measures what each kernel takes.
    """

    def __init__(self, launches: Sequence[Launch], results: Sequence[Any], ends: Sequence[int]) -> None:
        """`ends`: of each part, how many launches there are up to its end."""
        self.results = tuple(results)
        self.is_timed = False
        self._launches = launches
        self._replay = default_kernels().replay
        self._operands, self._steps = _lay_out(launches)
        first = addressof(self._steps)
        self._runs = [[_pack_replay(first, end, is_timed) for end in ends] for is_timed in (False, True)]

    def run(self, num_parts: int = -1) -> None:
        """Makes the calls, one after the other, without the interpreter's lock.

        Args:
            num_parts: of the first so many parts; -1 for all.

        Raises:
            ValueError: a kernel has found a fault in the content of its operands; those behind it have not run.
        """
        code = self._replay(self._runs[self.is_timed][num_parts - 1 if num_parts > 0 else -1])
        if code:
            raise ValueError(self._launches[(code >> 32) - 1].faults[code & 0xFFFFFFFF])

    def take_times(self) -> Counter[str]:
        """The nanoseconds that each kernel took, by its name, in the timed runs since the last call."""
        elapsed_ns: Counter[str] = Counter()
        for launch, step in zip(self._launches, self._steps, strict=True):
            elapsed_ns[launch.kernel.__name__] += step.elapsed_ns
            step.elapsed_ns = 0
        return elapsed_ns


def record(*parts: Callable[..., Any], arena: Arena) -> Recording:
    """Records the kernels that functions call in this thread, none of which are run now.

    Their results are in the arena, and so can be overwritten by any other recording with it. Shapes and strides, and
    the number of threads, are what they are now.

    Args:
        parts: one after the other, each called with the results of those before.

    Raises:
        UnrecordedOperatorError: a function computes with PyTorch's operators too, other than views.
    """
    tape, results, ends = Tape(arena), list[Any](), list[int]()
    with taping(tape), _ViewsOnly():  # type: ignore[no-untyped-call]
        for part in parts:
            results.append(part(*results))
            ends.append(len(tape.launches))
    return Recording(tape.launches, results, ends)


class _ViewsOnly(TorchDispatchMode):  # type: ignore[no-untyped-call]
    """Operators see tensors that are not computed yet."""

    @classmethod
    def _should_skip_dynamo(cls) -> bool:
        """Nothing here is compiled, and to import the compiler takes seconds."""
        return False

    def __torch_dispatch__(self, func: Any, types: Any, args: Any = (), kwargs: Any = None) -> Any:
        outputs = func(*args, **(kwargs or {})) if func.is_view else None
        # Some that may give views give copies where they must.
        if outputs is None or any(_memory(output) != _memory(args[0]) for output in tree_leaves(outputs)):
            raise UnrecordedOperatorError(f"{func} is none of the recorded kernels")
        return outputs


def _memory(tensor: Tensor) -> int:
    return tensor.untyped_storage().data_ptr()


def _lay_out(launches: Sequence[Launch]) -> tuple[Array[c_char], Array[_Step]]:
    """The operands one after the other, and the steps that refer to them."""
    operands = create_string_buffer(b"".join(launch.operands for launch in launches))
    starts = accumulate((len(launch.operands) for launch in launches), initial=addressof(operands))
    steps = [
        _Step(cast(launch.kernel, c_void_p), start)  # type: ignore[arg-type]
        for launch, start in zip(launches, starts, strict=False)
    ]
    return operands, (_Step * len(steps))(*steps)
