"""Prints the table of the zoo that docs/profile.md has: `python -m headway.profiler.zoo`."""

from headway.profiler.zoo.listing import markdown
from headway.profiler.zoo.registry import models

if __name__ == "__main__":
    print(markdown(models()), end="")
