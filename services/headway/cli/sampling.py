"""Options of the commands that generate."""

from typing import Annotated, TypeAlias, cast

import typer

from headway.client.prompt import GenerateOptions

Model: TypeAlias = Annotated[str | None, typer.Option(help="Name of the model; needed where several are served.")]
MaxTokens: TypeAlias = Annotated[int | None, typer.Option(min=1, help="Output tokens at most.")]
Temperature: TypeAlias = Annotated[float | None, typer.Option(min=0, max=2, help="0 is greedy.")]
TopK: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Keep the k most probable tokens; 0 keeps all.")]
TopP: TypeAlias = Annotated[float | None, typer.Option(min=0, max=1, help="Keep the tokens that reach probability p.")]
MinP: TypeAlias = Annotated[
    float | None, typer.Option(min=0, max=1, help="Drop tokens less probable than this share of the best one.")
]
Seed: TypeAlias = Annotated[int | None, typer.Option(min=0, help="Equal seeds give equal texts.")]
Stop: TypeAlias = Annotated[list[str] | None, typer.Option(help="A text that ends the answer. May be repeated.")]


def given(**options: object) -> GenerateOptions:
    """Keeps the options that were given; the others have the server's defaults."""
    return cast("GenerateOptions", {name: value for name, value in options.items() if value is not None})
