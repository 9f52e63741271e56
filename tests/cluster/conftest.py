"""Tests of the chart: as Helm renders it, and as processes of this machine.

`make test-chart` and `make test-cluster` build Helm and name it; without it the tests are not collected.
"""

import os

_NEEDS = {"HEADWAY_HELM": ["test_*.py"]}

collect_ignore_glob = [pattern for name, patterns in _NEEDS.items() if name not in os.environ for pattern in patterns]
