"""Makes an installed environment smaller by what no program reads: packages' own tests, solvers for other machines, and
what is in libraries for debuggers.

python deploy/images/slim.py DIRECTORY
"""

import platform
import shutil
import struct
import sys
from pathlib import Path

_ELF_OF_64_BITS = b"\x7fELF\x02\x01"  # the lower byte first
_SIZE_OF_HEADER = 64
_SOLVERS = {"x86_64": "i64", "aarch64": "arm64"}  # as PuLP calls these machines


def slim(directory: Path) -> None:
    """Removes it below the directory; what is left works as before."""
    for tests in [path for path in directory.rglob("tests") if path.is_dir()]:
        shutil.rmtree(tests)
    kept = ("linux", _SOLVERS.get(platform.machine(), ""))
    for solver in directory.glob("**/pulp/solverdir/cbc/*/*"):
        if solver.is_dir() and solver.parts[-2:] != kept:
            shutil.rmtree(solver)
    for library in directory.rglob("*.so*"):
        if library.is_file() and not library.is_symlink():
            strip(library)


def strip(library: Path) -> None:
    """Cuts a shared library off behind what is loaded of it, where that saves a hundredth. Behind that are its section
    headers, symbols and debugging data, which the dynamic linker does not read: it goes by the program headers
    (elf(5))."""
    size = library.stat().st_size
    with library.open("rb") as file:
        header = bytearray(file.read(_SIZE_OF_HEADER))
        if not header.startswith(_ELF_OF_64_BITS):
            return
        [headers_at] = struct.unpack_from("<Q", header, 32)
        header_size, num_headers = struct.unpack_from("<HH", header, 54)
        file.seek(headers_at)
        headers = file.read(header_size * num_headers)
        end = headers_at + len(headers)
        for index in range(num_headers):
            offset, _, _, loaded = struct.unpack_from("<QQQQ", headers, header_size * index + 8)
            end = max(end, offset + loaded)
        if size - end < size / 100:
            return
        file.seek(_SIZE_OF_HEADER)
        rest = file.read(end - _SIZE_OF_HEADER)
    struct.pack_into("<Q", header, 40, 0)  # where section headers are
    struct.pack_into("<HHH", header, 58, 0, 0, 0)  # their size and number, and which has their names
    written = library.with_name(f"{library.name}.new")  # another program may run what was there
    written.write_bytes(header + rest)
    written.chmod(library.stat().st_mode)
    written.replace(library)


if __name__ == "__main__":
    slim(Path(sys.argv[1]))
