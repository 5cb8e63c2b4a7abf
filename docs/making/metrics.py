"""The page of metrics: units and goals from what a run writes into its own metrics.jsonl, and a meaning for each."""

from __future__ import annotations

from typing import Any

from table import table

from paddock.jobs.run_output import describe_metrics
from paddock.tasks.registry import task_class, task_names

TRAINING = {
    "train.loss": "the mean over the valid tokens (or samples) of the step, over all processes",
    "train.lr": "the learning rate of the step",
    "train.grad_norm": "the norm of all gradients, before they are clipped",
    "train.ips": "samples, or images, a second, over all processes",
    "train.tokens_per_second": "the same in tokens, of models that read tokens",
    "train.tokens_per_second_per_device": "that, by device, where there are several",
    "train.step_time": "from the beginning of a step to its end; without evaluations and checkpoints",
    "train.data_time": "the part of it that is spent waiting for data",
    "train.compute_time": "the rest of it",
    "train.busy_time.PLACE": "in a pipeline: the time that the stages at this place compute, a step",
    "train.wait_time": "in a pipeline: the time a step in which the average stage waits for others",
    "train.own_time": "what this process does itself in a step, not waiting for others; where the host computes",
    "train.own_time.RANK": "the same of every process: shows which one keeps the others waiting",
    "train.achieved_flops": "what the model computes, by the arithmetic of its shape",
    "train.utilisation": "that, as a part of the devices' peak, from 0 to 1",
    "train.memory": "the most that tensors of the main process held at once; on a CPU, the most memory of the process",
    "train.loss_scale": "in float16: what the loss is multiplied by",
    "train.skipped_steps": "in float16: steps whose gradients did not fit, so far",
    "train.recovery_time": "after a restart: from the end of the attempt before to the end of its first step",
}
SUMMARY = {
    "summary.best_metric": "the best value of the task's first metric",
    "summary.skipped_samples": "training samples that could not be read and were replaced, if there were any",
    "summary.NAME": "the averages over the whole run of `ips`, `tokens_per_second`, `step_time`, and so on",
}


class _Described:
    """Hears what is said of metrics."""

    def __init__(self) -> None:
        self.told: dict[str, dict[str, str]] = {}

    def metadata(self, name: str, **about: Any) -> None:
        self.told[name] = {key: str(value) for key, value in about.items()}


def metrics_page() -> str:
    """Those of training, and of what every task measures."""
    lines = [
        "# Metrics",
        "",
        "`metrics.jsonl` of a run has a record a line, in the schema of dllogger. Metrics are called "
        "`GROUP.NAME`: `train` of a step that is logged, `val` of an evaluation, `summary` of the whole run. Times "
        "are in seconds, memory in bytes.",
        "",
        "## Training",
        "",
    ]
    units = described("language_modeling")
    rows = [(f"`{name}`", units.get(name, {}).get("unit", ""), meaning) for name, meaning in TRAINING.items()]
    lines += [*table(("metric", "unit", "meaning"), rows), "", "## Evaluation", ""]
    lines += ["What a task measures; the first of it decides which checkpoint is the best.", ""]
    measured = []
    for task in task_names():
        goals = {name: about["goal"] for name, about in described(task).items() if name.startswith("val.")}
        measured.append((f"`{task}`", ", ".join(f"`{name}` ({goal.lower()})" for name, goal in goals.items())))
    lines += table(("task", "metrics"), measured)
    lines += ["", "## The whole run", ""]
    lines += table(("metric", "meaning"), [(f"`{name}`", meaning) for name, meaning in SUMMARY.items()])
    return "\n".join(lines) + "\n"


def described(task: str) -> dict[str, dict[str, str]]:
    """Unit and goal of each metric of a task, as its runs describe them."""
    listener = _Described()
    describe_metrics(listener, task_class(task))  # type: ignore[arg-type]
    return listener.told
