"""`paddock.Trainer`: the verbs `train`, `evaluate` and `predict` as methods, for Python and notebooks.

    from paddock import Trainer

    trainer = Trainer(task="question_answering", model="qa_bert_base_uncased", train_dataset="./squad/",
                      eval_dataset="./squad/")
    trainer.train(resume_or_finetune_from_checkpoint="./bert-base-uncased", do_finetune=True)
    trainer.evaluate(eval_checkpoint=True)
    trainer.predict(predict_checkpoint=True, input_data=["… a text … - a question?"])

It composes a recipe and calls the jobs that the command line calls: nothing is computed here.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from paddock.config.layouts import parse_layout
from paddock.config.load import find_recipe, merge, read_values
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError, DataError, bad_value, did_you_mean
from paddock.files import user_path
from paddock.launch.options import LaunchOptions
from paddock.objects.address import is_address
from paddock.tasks.registry import name_datasets, task_called
from paddock.telemetry.jsonl import OnMetrics
from paddock.training.callbacks import Callback

Checkpoint = bool | str | Path | None


class Trainer:
    """One recipe, and what is done with it. Every method returns plain values."""

    def __init__(
        self,
        task: str | None = None,
        model: str | None = None,
        train_dataset: str | Path | None = None,
        eval_dataset: str | Path | None = None,
        *,
        recipe: str | Path | None = None,
        args: str | Path | Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        parallel: str | Mapping[str, Any] | None = None,
        nproc_per_node: int = 1,
        callbacks: Sequence[Callback | OnMetrics] = (),
        run_dir: str | Path | None = None,
    ) -> None:
        """`model` is a name that `paddock zoo list` shows; or give `recipe`, a name or a YAML file; or `args`, the
        same or a dictionary of sections. `overrides` are fields by dotted name ({"train.steps": 100}) or by section.
        `parallel` is a layout such as "dp2,tp2", or the recipe's section; `nproc_per_node` processes run it.
        `callbacks` are functions that hear of every record of metrics, or, in one process, `Callback`s."""
        name, values = _choose(model, recipe, args)
        own_task = values.get("task", Recipe.model_fields["task"].default)
        if task is not None:
            _check_task(task_called(task), own_task, name)
        train, evaluation = (None if path is None else str(path) for path in (train_dataset, eval_dataset))
        values = merge(values, {"data": name_datasets(own_task, train, evaluation)})
        if isinstance(parallel, str):
            values = merge(values, parse_layout(parallel))
        elif parallel is not None:
            values = merge(values, {"parallel": dict(parallel)})
        self.name = name
        self.recipe = recipe_from_dict(merge(values, _sections(overrides or {})))
        self.launch = LaunchOptions(nproc_per_node=nproc_per_node)
        self.callbacks = list(callbacks)
        self._address = str(run_dir) if is_address(run_dir) else None
        self.run_dir = None if run_dir is None else _folder(run_dir)
        """Where the newest run of this trainer is, or will be."""

    def train(
        self, resume_or_finetune_from_checkpoint: Checkpoint = False, do_finetune: bool = False
    ) -> dict[str, Any]:
        """Train to the end of the recipe; returns the step and loss it came to, the best metrics, `run_dir`, and
        `stopped`: None, or what stopped it before its end, such as "SIGTERM"; then it can go on.

        A checkpoint is True (the newest one of this trainer's run), a run, a checkpoint or a Hugging Face folder. It
        is resumed: weights, optimizer, schedule and data position. With `do_finetune` only its weights are taken.
        """
        from paddock.jobs.train import train
        from paddock.training.run_directory import outcome_of

        source = resume_or_finetune_from_checkpoint
        recipe, run_dir = self.recipe, self.run_dir
        if source in (False, None):
            if do_finetune:
                raise ConfigError(
                    "do_finetune = True without a checkpoint",
                    why="there are no weights to begin from",
                    fix="set resume_or_finetune_from_checkpoint to a run, a checkpoint or a Hugging Face folder",
                )
        elif source is True and not do_finetune:
            self._own_run("resume_or_finetune_from_checkpoint")
            recipe = _with(recipe, checkpoint={"load": "auto"})
        else:
            load = str(self._own_run("resume_or_finetune_from_checkpoint")) if source is True else _existing(source)
            resume = Path(load).is_file() and not do_finetune
            recipe = _with(recipe, checkpoint={"load": load, "weights_only": do_finetune, "resume": resume})
        if run_dir is None or (recipe.checkpoint.load != "auto" and (run_dir / "config.yaml").exists()):
            run_dir = None  # a new one
        inside = [callback for callback in self.callbacks if isinstance(callback, Callback)]
        outside = [callback for callback in self.callbacks if not isinstance(callback, Callback)]
        place = self._address or run_dir
        outcome = train(self.name, recipe, self.launch, place, callbacks=inside, on_metrics=outside)
        self.run_dir = outcome.run_dir
        self.recipe = _with(recipe, checkpoint={"load": None, "weights_only": False, "resume": False})
        return {**outcome_of(self.run_dir), "run_dir": str(self.run_dir), "stopped": outcome.stopped_by}

    def evaluate(self, eval_checkpoint: Checkpoint = False) -> dict[str, Any]:
        """Metrics over the whole validation set. True, or False after training, takes this trainer's newest
        checkpoint; else name a run, a checkpoint or a Hugging Face folder."""
        from paddock.jobs.evaluate import evaluate

        recipe = _with(self.recipe, checkpoint={"load": self._weights(eval_checkpoint, "eval_checkpoint")})
        result = evaluate(recipe, self.launch)
        return {} if result is None else {name.removeprefix("val."): value for name, value in result.items()}

    def predict(
        self,
        predict_checkpoint: Checkpoint = None,
        input_data: Any = None,
        *,
        top_k: int | None = None,
        batch_size: int = 8,
        **sampling: Any,
    ) -> list[Any]:
        """The answers to `input_data`, one input or a list of them: for each the best, or with `top_k` a list.

        A language model continues its inputs; `sampling` is then max_new_tokens, temperature, top_p or seed."""
        if input_data is None:
            raise ConfigError("there is no input_data", fix="give one input, or a list of them")
        inputs = list(input_data) if isinstance(input_data, list | tuple) else [input_data]
        weights = self._weights(predict_checkpoint, "predict_checkpoint")
        if self.recipe.task == "language_modeling":
            return self._continue(weights, inputs, {"top_k": top_k, **sampling})
        from paddock.jobs.predict import Given, open_predictor, predict

        if sampling:
            raise ConfigError(
                f"{', '.join(sampling)}: a {self.recipe.task} model writes no text, so nothing would use it"
            )
        given = [Given(str(number), f"input_data[{number}]", value) for number, value in enumerate(inputs)]
        predictor = open_predictor(weights, self.recipe.train.device, batch_size)
        found = predict(predictor, given, top_k or 1, device=self.recipe.train.device)
        return [one.answers[0] if top_k is None else one.answers for one in found]

    def _continue(self, weights: str, prompts: list[Any], sampling: dict[str, Any]) -> list[dict[str, Any]]:
        from dataclasses import asdict, fields

        from paddock.inference.generation.options import GenerationOptions
        from paddock.jobs.generate import TextJob, continue_text

        known = [field.name for field in fields(GenerationOptions)]
        for name in sampling:
            if name not in known:
                raise ConfigError(f"{name}: there is no such option", fix=did_you_mean(name, known))
        job = TextJob(weights, GenerationOptions(**sampling), tuple(prompts), device=self.recipe.train.device)
        return [asdict(one) for one in continue_text(job)]

    def _weights(self, source: Checkpoint, argument: str) -> str:
        if source is True or source in (False, None):
            return str(self._own_run(argument))
        return _existing(source)

    def _own_run(self, argument: str) -> Path:
        """This trainer's run, if it has a checkpoint."""
        from paddock.checkpoint.directory import find_checkpoint

        if self.run_dir is None or not self.run_dir.exists():
            raise ConfigError(
                f"{argument}: this trainer has no checkpoint yet",
                why="it has trained nothing",
                fix="call train() first, or name a run, a checkpoint or a Hugging Face folder",
            )
        find_checkpoint(self.run_dir)
        return self.run_dir


def _choose(
    model: str | None, recipe: str | Path | None, args: str | Path | Mapping[str, Any] | None
) -> tuple[str, dict[str, Any]]:
    """The values that one of three ways to name a recipe gives, and a name for the run."""
    ways = {"model": model, "recipe": recipe, "args": args}
    given = [name for name, value in ways.items() if value is not None]
    if isinstance(args, Mapping) and len(given) == 2:  # a dictionary changes what the other one names
        name, values = _choose(model, recipe, None)
        return name, merge(values, _sections(args))
    if len(given) != 1:
        raise ConfigError(
            f"{' and '.join(given)} name a recipe" if given else "no model is named",
            fix="give one of model, recipe and args",
        )
    if isinstance(args, Mapping):
        values = dict(args)
        parent = values.pop("extends", None)
        base = {} if parent is None else read_values(find_recipe(str(parent)))
        return "trainer", merge(base, _sections(values))
    name = str(next(value for value in ways.values() if value is not None))
    return name, read_values(find_recipe(name))


def _check_task(wanted: str, own: str, name: str) -> None:
    if wanted != own:
        from paddock.config.load import zoo

        fitting = [entry.name for entry in zoo() if entry.task == wanted]
        raise bad_value(
            "task",
            wanted,
            f"{name} is a recipe for {own}",
            f"leave the task out, or choose a model from: {', '.join(fitting)}",
        )


def _sections(values: Mapping[str, Any]) -> dict[str, Any]:
    """Dotted names as sections: {"train.steps": 1} and {"train": {"steps": 1}} are the same."""
    sections: dict[str, Any] = {}
    for name, value in values.items():
        *path, last = name.split(".")
        entry: dict[str, Any] = {last: dict(value) if isinstance(value, Mapping) else value}
        for part in reversed(path):
            entry = {part: entry}
        sections = merge(sections, entry)
    return sections


def _with(recipe: Recipe, **sections: Mapping[str, Any]) -> Recipe:
    return recipe_from_dict(merge(recipe.to_dict(), {name: dict(values) for name, values in sections.items()}))


def _folder(run_dir: str | Path) -> Path:
    """Where a run works: of an address, in a folder here."""
    if not is_address(run_dir):
        return Path(run_dir)
    from paddock.training.remote.run import RemoteRun  # which needs torch

    return RemoteRun.at(str(run_dir)).folder


def _existing(source: Any) -> str:
    if is_address(source):
        return str(source)
    path = user_path(str(source))
    if not path.exists():
        runs = sorted(str(run) for run in Path("runs").glob("*")) if Path("runs").is_dir() else []
        near = f"{did_you_mean(str(source), runs)}; " if runs else ""
        raise DataError(
            f"there is no checkpoint {source}",
            why="names of checkpoints are paths: nothing is downloaded",
            fix=f"{near}give a run, a checkpoint or a Hugging Face folder",
        )
    return str(path)
