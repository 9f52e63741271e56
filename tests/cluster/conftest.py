"""Tests of the chart: as Helm renders it, as processes of this machine, and with an API server of Kubernetes.

`make test-chart` and `make test-cluster` build the programs and name them; tests whose programs are not there are not
collected.
"""

import os

_NEEDS = {"HEADWAY_HELM": "test_*.py", "HEADWAY_KUBE_APISERVER": "test_resources.py"}

collect_ignore_glob = [pattern for name, pattern in _NEEDS.items() if name not in os.environ]
