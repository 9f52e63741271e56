"""The figures of what is promised when something dies, is flooded or lasts long; a command for each."""

import typer

from benchmarks.reliability.heavy import heavy
from benchmarks.reliability.held import held
from benchmarks.reliability.idle import idle
from benchmarks.reliability.kills import kills
from benchmarks.reliability.overload import overload
from benchmarks.reliability.restarts import restarts
from benchmarks.reliability.soak import soak
from benchmarks.reliability.tenants import tenants

app = typer.Typer(no_args_is_help=True, add_completion=False)
for part in (tenants, kills, overload, idle, held, heavy, restarts, soak):
    app.command()(part)

if __name__ == "__main__":
    app()
