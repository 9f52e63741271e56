"""Tests of the chart: as Helm renders it, as processes of this machine, and on a control plane of Kubernetes.

`make test-cluster` builds Helm and names it, `make test-cluster-install` the control plane too; without them the tests
that need them are not collected.
"""

import os

_NEEDS = {"HEADWAY_HELM": ["test_*.py"], "HEADWAY_KUBERNETES": ["test_install.py"]}

collect_ignore_glob = [pattern for name, patterns in _NEEDS.items() if name not in os.environ for pattern in patterns]
