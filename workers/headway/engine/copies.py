"""The block copies that a step carries out before it computes.

They run in this order: out (device to host), in (host to device), within the device. Each kind is a map from
destination to source, so a destination has one writer, and these rules keep every source intact until it is read:

    out     reads a device block as it was before the step: nothing has written to the device yet
    in      reads a host block after `out`: a host block that is read is not given to another content in this step
    within  reads a device block after `in`: a device block that is read is not given away in this step

Those within the device are copies on write and moves between shards. A copy of a copy goes back to the first source,
so no copy waits for another one of its own kind.
"""

from dataclasses import dataclass, field


@dataclass(slots=True)
class PendingCopies:
    """Copies of the step that is being scheduled.

    Attributes:
        out: source device block by host block.
        into: source host block by device block.
        within: source device block by device block.
        read_within, read_on_host: sources that must keep their content until the copies are carried out, even where
            the copy itself is no longer needed.
    """

    out: dict[int, int] = field(default_factory=dict)
    into: dict[int, int] = field(default_factory=dict)
    within: dict[int, int] = field(default_factory=dict)
    read_within: set[int] = field(default_factory=set)
    read_on_host: set[int] = field(default_factory=set)

    def add_out(self, block: int, *, host_block: int) -> None:
        """Moves a block's content to the host; one that awaits its content from the host lies there already."""
        assert block not in self.into, f"block {block} goes out before it has come in"
        self.out[host_block] = self.within.get(block, block)

    def add_in(self, host_block: int, *, block: int) -> bool:
        """Brings a host block's content in; True if this is the first copy that reads it."""
        is_first = host_block not in self.read_on_host
        self.into[block] = host_block
        self.read_on_host.add(host_block)
        return is_first

    def add_within(self, source: int, *, block: int) -> None:
        """Copies `source` to `block`, from wherever the content of `source` comes in this step."""
        if source in self.into:
            self.into[block] = self.into[source]
            return
        source = self.within.get(source, source)
        self.within[block] = source
        self.read_within.add(source)

    def forget(self, block: int) -> None:
        """Leaves out the copy to a device block whose content is no longer needed."""
        self.into.pop(block, None)
        self.within.pop(block, None)

    def reads(self, block: int) -> bool:
        """Whether a copy within the device needs this block's content."""
        return block in self.read_within

    def pairs(self) -> tuple[list[tuple[int, int]], list[tuple[int, int]], list[tuple[int, int]]]:
        """(source, destination) of the copies out, in and within."""
        out = [(block, host_block) for host_block, block in self.out.items()]
        into = [(host_block, block) for block, host_block in self.into.items()]
        return out, into, [(source, block) for block, source in self.within.items()]
