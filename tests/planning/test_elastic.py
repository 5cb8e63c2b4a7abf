"""On how many machines an elastic job can work, and that a dry run says so."""

from __future__ import annotations

import json

import pytest

from paddock.cli.main import run
from paddock.config.load import load_recipe, merge
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions
from paddock.planning.elastic import node_counts


def laid_out(tensor: int, pipeline: int) -> Recipe:
    """8 sequences, of which each may be a micro-batch."""
    changes = {"batch": {"micro": 1, "global": 8}, "parallel": {"tensor": tensor, "pipeline": pipeline}}
    return recipe_from_dict(merge(load_recipe("gpt2/tiny").to_dict(), changes))


def elastic(low: int, high: int, processes: int) -> LaunchOptions:
    return LaunchOptions(processes, nnodes=high, min_nodes=low, rdzv_id="x", master_addr="127.0.0.1")


@pytest.mark.parametrize(
    ("tensor", "pipeline", "low", "high", "processes", "counts"),
    [
        (2, 2, 1, 3, 2, [2]),
        (2, 2, 1, 4, 2, [2, 4]),
        (2, 2, 1, 2, 4, [1, 2]),
        (2, 2, 1, 3, 4, [1, 2]),  # 8 sequences are not to be shared by 3
        (1, 2, 2, 4, 1, [2, 4]),
        (1, 1, 1, 4, 1, [1, 2, 4]),
    ],
)
def test_tensor_and_pipeline_stay_and_data_follows(
    tensor: int, pipeline: int, low: int, high: int, processes: int, counts: list[int]
) -> None:
    assert node_counts(laid_out(tensor, pipeline), elastic(low, high, processes)) == counts


def test_a_job_that_is_not_elastic_has_its_machines() -> None:
    assert node_counts(load_recipe("gpt2/tiny"), LaunchOptions(nnodes=3, master_addr="127.0.0.1")) == [3]


def test_there_may_be_no_number_on_which_it_can_work() -> None:
    with pytest.raises(ConfigError, match="3 processes do not divide by 4"):
        node_counts(laid_out(2, 2), elastic(1, 3, 1))


FLAGS = "--rdzv-id x --master-addr 127.0.0.1 --parallel.tensor 2 --parallel.pipeline 2"


@pytest.mark.parametrize("verb", ["train gpt2/tiny --dry-run", "check config gpt2/tiny"])
def test_a_dry_run_looks_at_what_the_job_would_be(verb: str, capsys: pytest.CaptureFixture[str]) -> None:
    assert run([*verb.split(), "--nnodes", "1:3", "--nproc-per-node", "2", *FLAGS.split(), "--json"]) == 0
    rules = {rule["rule"]: rule for rule in json.loads(capsys.readouterr().out)["rules"]}
    assert all(rule["holds"] for rule in rules.values())
    assert rules["layout"]["detail"].endswith("= 4 processes")
    assert rules["machines"]["detail"] == "of 1:3 machines, it can work on 2"


def test_a_dry_run_says_why_it_can_work_on_none(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "gpt2/tiny", "--dry-run", "--nnodes", "1:3", "--nproc-per-node", "1", *FLAGS.split()]) == 2
    said = capsys.readouterr()
    assert "3 processes do not divide by 4" in said.out and "broken: layout" in said.err
