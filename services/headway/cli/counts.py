"""Numbers in a row, as people write them."""

import typer


def parse_counts(text: str) -> tuple[int, ...]:
    """'3,5' is (3, 5); typer.BadParameter where something else is written than numbers above 0."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"'{text}' are no numbers above 0, separated by commas, such as 3,5")
    return tuple(map(int, parts))
