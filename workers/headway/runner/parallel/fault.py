"""Turns torch's errors about a broken connection into messages."""


def reason(error: RuntimeError) -> str:
    """Returns the first line of the error's message: the C++ frames that follow help nobody."""
    return str(error).partition("\n")[0]
