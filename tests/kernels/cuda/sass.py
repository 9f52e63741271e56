"""Loops in machine code, as `cuobjdump -sass` prints it."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

_FUNCTION = re.compile(r"Function : (\w+)")
_INSTRUCTION = re.compile(r"/\*([0-9a-f]{4,})\*/\s+(@\S+ )?\s*([A-Z][\w.]*)([^;]*);")


@dataclass(frozen=True, slots=True)
class Instruction:
    """Attributes:
    name: with its modifiers, as in `LDGSTS.E.BYPASS.128`.
    target: the address that a branch leads to; None if it is none.
    """

    address: int
    is_conditional: bool
    name: str
    target: int | None

    def is_a(self, *names: str) -> bool:
        return self.name.split(".")[0] in names


Code = Sequence[Instruction]


def read_functions(sass: str) -> dict[str, Code]:
    """Each function's instructions, by its mangled name."""
    _, *parts = _FUNCTION.split(sass)
    return {
        name: [_instruction(*found.groups()) for found in _INSTRUCTION.finditer(text)]
        for name, text in zip(parts[::2], parts[1::2], strict=True)
    }


def _instruction(address: str, condition: str | None, name: str, operands: str) -> Instruction:
    # A branch that only lanes of their own way take does not leave the warp's.
    target = re.search(r"0x([0-9a-f]+)", operands) if name == "BRA" else None
    return Instruction(int(address, 16), condition is not None, name, int(target[1], 16) if target else None)


def smallest_loop(code: Code, *names: str) -> Code:
    """Of the loops with an instruction of each name."""
    bounds = [(one.target, one.address) for one in code if one.target is not None and one.target < one.address]
    loops = [[one for one in code if first <= one.address <= last] for first, last in bounds]
    return min((loop for loop in loops if all(any(one.is_a(name) for one in loop) for name in names)), key=len)


def executed(loop: Code, *, skipped: str) -> Code:
    """What a warp goes through that takes every branch past an instruction named `skipped`, and no other."""
    path, resumes_at = [], 0
    for one in loop:
        if one.address < resumes_at:
            continue
        path.append(one)
        if one.target is not None and one.target > one.address:
            passed = [other.name for other in loop if one.address < other.address < one.target]
            if not one.is_conditional or skipped in passed:
                resumes_at = one.target
    return path
