"""Lists of numbers on the command line."""

import typer


def parse_counts(text: str) -> tuple[int, ...]:
    """Reads '3,5' as (3, 5); raises typer.BadParameter unless all are whole numbers above 0."""
    parts = text.split(",")
    if not all(part.strip().isdecimal() and int(part) > 0 for part in parts):
        raise typer.BadParameter(f"'{text}' are no numbers above 0, separated by commas, such as 3,5")
    return tuple(map(int, parts))
