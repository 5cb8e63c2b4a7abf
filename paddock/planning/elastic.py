"""On how many machines an elastic job can work."""

from __future__ import annotations

from paddock.config.recipe import Recipe
from paddock.config.rules import RuleResult, check_recipe, examine
from paddock.errors import ConfigError
from paddock.launch.options import LaunchOptions


def node_counts(recipe: Recipe, launch: LaunchOptions) -> list[int]:
    """Of an elastic job, the numbers of machines over which its recipe can be laid out: tensor and pipeline stay as
    they are, and `data` and the accumulation follow. An error, if there is none."""
    legal, refusal = [], None
    for nodes in range(launch.min_nodes or launch.nnodes, launch.nnodes + 1) if launch.elastic else ():
        try:
            check_recipe(recipe, nodes * launch.nproc_per_node)
        except ConfigError as error:
            refusal = error
        else:
            legal.append(nodes)
    if refusal is not None and not legal:
        raise refusal
    return legal or [launch.nnodes]


def examine_job(recipe: Recipe, launch: LaunchOptions) -> list[RuleResult]:
    """Every rule with its outcome. Of an elastic job on the most machines on which it can work, and which numbers of
    them those are."""
    try:
        counts = node_counts(recipe, launch)
    except ConfigError:  # the rules below say why
        return examine(recipe, launch.world_size)
    results = examine(recipe, counts[-1] * launch.nproc_per_node)
    if not launch.elastic:
        return results
    words = f"of {launch.nodes} machines, it can work on {', '.join(map(str, counts))}"
    return [*results, RuleResult("machines", True, words)]
