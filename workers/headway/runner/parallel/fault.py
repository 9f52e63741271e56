"""What torch says when a line breaks."""


def reason(error: RuntimeError) -> str:
    """Its first line: the frames of C++ that follow help nobody."""
    return str(error).partition("\n")[0]
