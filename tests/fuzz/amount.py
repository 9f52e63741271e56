"""How many cases there are: few in the suite, as many as `make fuzz CASES=N` says."""

import os

NUM_CASES = int(os.environ.get("HEADWAY_FUZZ_CASES", "10000"))
"""Of all targets of `tests.fuzz.targets` together."""

NUM_CALLS = max(8, NUM_CASES // 1250)
"""Of each method and operation of a service: what goes over a socket costs more than other cases."""
