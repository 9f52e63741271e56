"""One model over several workers, each pinned to a core: throughput, and what goes over the wires."""
