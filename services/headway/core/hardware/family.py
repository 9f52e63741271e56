"""The families of cells that are timed on a machine, each on a complete grid of extents."""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from enum import StrEnum
from itertools import product

from headway.core.hardware.cell import Cell


@dataclass(frozen=True, slots=True, kw_only=True)
class CellFamily:
    """Cells that differ in their extents only.

    Attributes:
        axes: name and extents of each dim.
        dtypes: in which it is timed.
        about: what a cell does, in words.
    """

    name: str
    axes: tuple[tuple[str, tuple[int, ...]], ...]
    about: str
    dtypes: tuple[str, ...] = ("float32",)

    def cells(self) -> Iterator[Cell]:
        for dtype in self.dtypes:
            for extents in product(*(values for _, values in self.axes)):
                yield Cell(family=self.name, dtype=dtype, extents=extents)


_WIDTHS = (16, 64, 256, 1024, 4096)
_ELEMENTS = (1, 1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 23, 1 << 24)
_ROWS = (1, 32, 512, 4096)
_BYTES = (1 << 12, 1 << 15, 1 << 18, 1 << 20, 1 << 22, 1 << 24, 1 << 26, 1 << 28)

STREAMS = tuple(
    CellFamily(name=name, axes=(("bytes", _BYTES),), about=about)
    for name, about in (
        ("stream_read", "sums an array"),
        ("stream_copy", "copies an array to another"),
        ("stream_triad", "a = b + s c, of arrays; the bytes are those of all three"),
    )
)
DISPATCH = CellFamily(
    name="dispatch", axes=(("calls", (1,)),), about="a module's call and two views, as around most operators of a model"
)
ELEMENTWISE = tuple(
    CellFamily(name=name, axes=(("elements", _ELEMENTS),), about=f"{name} of that many elements into new memory")
    for name in (
        "add",
        "relu",
        "gelu",
        "silu",
        "tanh",
        "exp",
        "sin",
        "sqrt",
        "div",
        "compare",
        "convert",
        "where",
        "pool",
        "batch_norm",
    )
)
ROWS = tuple(
    CellFamily(name=name, axes=(("rows", _ROWS), ("columns", (64, 256, 1024, 4096))), about=about)
    for name, about in (
        ("softmax", "softmax over each row"),
        ("layer_norm", "normalises each row"),
        ("reduce", "mean of each row"),
        ("transpose", "copies [rows / 16, 16, columns] as [16, rows / 16, columns]"),
        ("concatenate", "two halves of each row into one"),
        ("gather", "rows of a table that is larger than the caches"),
    )
)
PRODUCTS = (
    CellFamily(
        name="matmul",
        axes=(("m", (1, 2, 4, 8, 16, 32, 64, 128, 256, 1024)), ("n", _WIDTHS), ("k", _WIDTHS)),
        about="linear layer of m rows, k to n features; the weight comes from memory",
    ),
    CellFamily(
        name="matmul",
        axes=(("m", (1, 8, 64, 512)), ("n", (64, 512, 4096)), ("k", (64, 512, 4096))),
        about="the same in 16 bits",
        dtypes=("bfloat16",),
    ),
    CellFamily(
        name="matmul_cached",
        axes=(("m", (1, 2, 4, 8, 16, 32, 64, 256)), ("n", (16, 64, 256, 1024)), ("k", (16, 64, 256, 1024))),
        about="the same with the weight in the caches",
    ),
    CellFamily(
        name="batched_matmul",
        axes=(("batch", (1, 8, 64)), ("m", (1, 16, 128, 512)), ("n", (16, 64, 256)), ("k", (16, 64, 256))),
        about="a product for each of a batch",
    ),
    CellFamily(
        name="convolution",
        axes=(
            ("taps", (1, 9)),
            ("pixels", (49, 196, 784, 3136)),
            ("inputs", (3, 16, 64, 256, 512)),
            ("outputs", (16, 64, 256, 512)),
        ),
        about="2-D, taps of a square kernel, channels in and out, pixels out",
    ),
    CellFamily(
        name="grouped_convolution",
        axes=(("pixels", (196, 784, 3136)), ("channels", (64, 256, 1024)), ("group", (1, 4, 16, 64))),
        about="3 x 3, with so many channels in each group",
    ),
    CellFamily(
        name="attention",
        axes=(
            ("heads", (4, 32)),
            ("queries", (1, 16, 64, 256, 1024)),
            ("keys", (16, 64, 256, 1024)),
            ("dim", (32, 128)),
        ),
        about="softmax(q k^T) v in one operator",
    ),
    CellFamily(
        name="causal_attention",
        axes=(("heads", (4, 32)), ("queries", (16, 64, 256, 1024)), ("dim", (32, 64, 128))),
        about="the same where each position sees those before it",
    ),
)
WEIGHTS = CellFamily(
    name="weights",
    axes=(("bytes", tuple(size << 20 for size in (1, 4, 8, 12, 16, 24, 32, 48, 64, 128))),),
    about="linear layer of 16 rows, 512 to 512 features, whose weights take turns through that many bytes",
)
COMPUTE: tuple[CellFamily, ...] = (DISPATCH, *STREAMS, *ELEMENTWISE, *ROWS, *PRODUCTS, WEIGHTS)
_MESSAGES = (1 << 10, 1 << 13, 1 << 16, 1 << 18, 1 << 20, 1 << 22, 1 << 24)


class Transport(StrEnum):
    """The transport that carries tensors between ranks."""

    SHARED_MEMORY = "shared memory"
    LOOPBACK = "gloo on one machine"
    NETWORK = "gloo between machines"
    NCCL = "NCCL"


@dataclass(frozen=True, slots=True)
class Collective:
    """Attributes:
    operation: 'all_reduce', ..., or 'send', in which two stages exchange a tensor both ways.
    """

    operation: str
    transport: Transport


_OPERATIONS = ("all_reduce", "all_gather", "reduce_scatter", "all_to_all")
COLLECTIVES: dict[str, Collective] = {
    **{name: Collective(name, Transport.SHARED_MEMORY) for name in _OPERATIONS},
    "send": Collective("send", Transport.LOOPBACK),
    **{f"{name}_gloo": Collective(name, Transport.LOOPBACK) for name in _OPERATIONS},
    **{f"{name}_network": Collective(name, Transport.NETWORK) for name in (*_OPERATIONS, "send")},
    **{f"{name}_nccl": Collective(name, Transport.NCCL) for name in (*_OPERATIONS, "send")},
}
"""By the family's name. Groups of workers on one machine use those without a suffix; stages send over gloo. On GPUs
all of them use NCCL."""


def collective_families(num_ranks: Iterable[int], transport: Transport) -> tuple[CellFamily, ...]:
    """Extents are ranks and the bytes of the whole tensor: that is summed, gathered, scattered, exchanged or sent."""
    sizes = tuple(sorted(set(num_ranks)))
    return tuple(
        CellFamily(
            name=name,
            axes=(("ranks", (2,) if collective.operation == "send" else sizes), ("bytes", _MESSAGES)),
            about=f"{collective.operation} between processes, over {transport}",
        )
        for name, collective in COLLECTIVES.items()
        if sizes and collective.transport is transport
    )
