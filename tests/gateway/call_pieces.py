"""Tool calls that come in pieces."""

from headway.gateway.tools.call import CallDelta


def take_piece(calls: list[tuple[str, str]], piece: CallDelta) -> None:
    """Adds a piece to the name and arguments of its call."""
    if piece.index == len(calls):
        calls.append((piece.name, piece.arguments))
    else:
        assert not piece.name, "a name comes once"
        calls[piece.index] = (calls[piece.index][0], calls[piece.index][1] + piece.arguments)
