"""Tests of the chart: rendered by Helm, as processes of this machine, and with Kubernetes' custom resources.

`make test-chart` and `make test-cluster` build the programs and name them; tests whose programs are not there are not
collected.
"""

import os

_NEEDS = {"HEADWAY_HELM": "test_*.py", "HEADWAY_RESOURCE_SERVER": "test_resources.py"}

collect_ignore_glob = [pattern for name, pattern in _NEEDS.items() if name not in os.environ]
