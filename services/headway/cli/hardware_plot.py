"""Draws a hardware profile as a picture."""

from pathlib import Path

from headway.core.errors import InvalidArgumentError
from headway.core.hardware.family import STREAMS
from headway.core.hardware.profile import HardwareProfile


def draw_profile(profile: HardwareProfile, path: Path) -> None:
    """Draws three panels: matrix products over rows, bandwidth over sizes, collectives over bytes.

    Raises:
        InvalidArgumentError: the file cannot be written.
    """
    from matplotlib.figure import Figure

    figure = Figure(figsize=(14, 4), layout="constrained")
    products, streams, links = figure.subplots(1, 3)
    if profile.has("matmul", "float32"):
        lattice = profile.lattice("matmul")
        rows, widths, _ = lattice.axes
        for width in widths:
            rates = [2 * m * width * width / lattice.at((m, width, width)) / 1e9 for m in rows]
            products.plot(rows, rates, marker=".", label=f"{width} x {width}")
    for family in STREAMS:
        if profile.has(family.name, "float32"):
            lattice = profile.lattice(family.name)
            sizes = lattice.axes[0]
            rates = [size / lattice.at((size,)) / 1e9 for size in sizes]
            streams.plot(sizes, rates, marker=".", label=family.name.removeprefix("stream_"))
    for link in profile.links:
        label = f"{link.collective}, {link.num_ranks} ranks"
        links.plot(link.curve.sizes, [1e3 * seconds for seconds in link.curve.seconds], marker=".", label=label)
    for axes, title, x, y in (
        (products, "float32 products", "rows", "GFLOP/s"),
        (streams, "memory", "bytes", "GB/s"),
        (links, "collectives", "bytes", "ms"),
    ):
        axes.set(title=title, xlabel=x, ylabel=y, xscale="log", yscale="log")
        axes.grid(visible=True, alpha=0.3)
        if axes.lines:
            axes.legend(fontsize=7)
    try:
        figure.savefig(path, dpi=110)
    except (OSError, ValueError) as error:
        raise InvalidArgumentError(f"{path} cannot be written: {error}.", hint="Name a .png file.") from error
