"""What decode attention on the tensor cores executes for each byte of keys and values: no GPU is needed to count it.

An SM of an H200 issues four warp instructions a clock and gets about 17.5 bytes a clock from memory: beyond 0.23
instructions a byte a kernel cannot keep up with it.
"""

import re
import subprocess
from pathlib import Path

import pytest

from headway.kernels.cuda import build
from headway.kernels.cuda.sources import GPU_LIBRARY
from tests.kernels.cuda.sass import executed, read_functions, smallest_loop

# (type, head size, tiles of heads): instructions for each byte. A stage is 16 keys and their values.
BOUNDS = {
    ("bfloat16", 64, 1): 0.051,
    ("bfloat16", 64, 2): 0.070,
    ("bfloat16", 128, 1): 0.036,
    ("bfloat16", 128, 2): 0.050,
    ("bfloat16", 256, 1): 0.029,
    ("fp8_e4m3", 64, 1): 0.106,
    ("fp8_e4m3", 64, 2): 0.149,
    ("fp8_e4m3", 128, 1): 0.076,
    ("fp8_e4m3", 128, 2): 0.106,
    ("fp8_e4m3", 256, 1): 0.064,
}
SASS = """\
                Function : _ZN7headway4loopEv
        /*0000*/                   MOV R1, c[0x0][0x28] ;    /* 0x00000a0000017a02 */
        /*0010*/                   LDGSTS.E.128 [R2], desc[UR4][R4.64], P0 ;
        /*0020*/              @!P1 BRA 0x50 ;
        /*0030*/                   MUFU.RCP R6, R7 ;
        /*0040*/                   FMUL R6, R6, R7 ;
        /*0050*/               @P2 BRA 0x70 ;
        /*0060*/                   HMMA.16816.F32 R8, R12, R16, R8 ;
        /*0070*/               @P0 BRA 0x10 ;
        /*0080*/                   BRA 0x80;
"""


def test_a_loop_is_read() -> None:
    loop = smallest_loop(read_functions(SASS)["_ZN7headway4loopEv"], "HMMA", "LDGSTS")
    assert [one.address for one in loop] == [0x10, 0x20, 0x30, 0x40, 0x50, 0x60, 0x70]
    assert [one.address for one in executed(loop, skipped="MUFU.RCP")] == [0x10, 0x20, 0x50, 0x60, 0x70]


def find_cuobjdump() -> str | None:
    """Of the toolkit, or else of the one that came with torch."""
    triton = Path(pytest.importorskip("triton").__file__).parent / "backends" / "nvidia" / "bin" / "cuobjdump"
    return build.find_tool("cuobjdump") or (str(triton) if triton.exists() else None)


def test_no_loop_executes_more_than_memory_leaves_time_for() -> None:
    cuobjdump = find_cuobjdump()
    if not build.is_current() or cuobjdump is None:
        pytest.skip("the CUDA kernels are not compiled for GPUs (`make cuda`), or there is no cuobjdump")
    command = [cuobjdump, "-sass", "-arch", "sm_90a", str(GPU_LIBRARY)]
    functions = read_functions(subprocess.run(command, capture_output=True, text=True, check=True).stdout)
    measured = {}
    for name, code in functions.items():
        found = re.search(r"decode_matrixI\d+__nv_(\w+?)Li(\d+)ELi(\d)E", name)
        if found is None:
            continue
        loop = smallest_loop(code, "HMMA", "LDGSTS")
        assert not any(one.is_a("LDL", "STL") for one in loop), f"{name} keeps numbers in memory"
        stage_bytes = 2 * 16 * int(found[2]) * (1 if found[1].startswith("fp8") else 2)
        # Only a soft cap divides: plain scores go past it, and what ALiBi adds.
        measured[found[1], int(found[2]), int(found[3])] = len(executed(loop, skipped="MUFU.RCP")) / stage_bytes
    assert measured.keys() == BOUNDS.keys()
    assert {key: value for key, value in measured.items() if value > BOUNDS[key]} == {}
