"""`headway profile model`, without a stack."""

import json

from headway.profiler.zoo.network import make_network
from headway.profiler.zoo.registry import find
from tests.cli.conftest import Run


def test_totals_operators_and_times_on_hardware_of_the_catalogue_as_json(headway: Run) -> None:
    options = ("--train", "--json", "--operators", "--batch", "2", "--hardware", "h100-sxm")
    result = headway("profile", "model", "zoo:gpt3-1b-small", "--capture-only", *options)
    assert result.returncode == 0, result.stderr
    document = json.loads(result.stdout)
    module = make_network(find("gpt3-1b-small"))
    assert document["parameters"] == sum(parameter.numel() for parameter in module.parameters())
    assert document["parameter_bytes"] == document["gradient_bytes"] == 4 * document["parameters"]
    assert document["activation_bytes"] > 0
    assert document["unknown_operators"] == {}
    assert len(document["content_hash"]) == 16
    listed = document["operator_list"]
    assert len(listed) == document["operators"]
    assert sum(operator["flops"] for operator in listed) == document["flops"] > 2 * document["forward_flops"]
    assert document["hardware"] == "H100"
    assert document["provenance"] == "estimated"
    assert document["seconds"] > 0
    tensors = {tensor["name"] for tensor in document["tensors"]}
    assert all({*operator["inputs"], *operator["outputs"]} <= tensors for operator in listed)


def test_the_table_has_the_hottest_first(headway: Run) -> None:
    result = headway("profile", "model", "zoo:gpt3-1b-small", "--capture-only")
    assert result.returncode == 0, result.stderr
    kinds = [
        line.split()[0] for line in result.stdout.splitlines() if line.startswith((" matmul", " attention", " copy"))
    ]
    assert kinds[0] == "matmul"
    assert "hash" in result.stdout


def test_faults_end_with_a_hint(headway: Run) -> None:
    result = headway("profile", "model", "zoo:gpt9", "--capture-only")
    assert result.returncode == 1
    assert "The zoo has no model 'gpt9'" in result.stderr
    assert "hint:" in result.stderr
