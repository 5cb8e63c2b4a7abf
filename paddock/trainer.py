"""`paddock.Trainer`: the verbs as methods, for Python and notebooks.

    from paddock import Trainer

    trainer = Trainer(task="question_answering", model="qa_bert_base_uncased", train_dataset="./squad/",
                      eval_dataset="./squad/")
    trainer.train(resume_or_finetune_from_checkpoint="./bert-base-uncased", do_finetune=True)
    trainer.evaluate(eval_checkpoint=True)
    trainer.predict(predict_checkpoint=True, input_data=["… a text … - a question?"])

It composes a recipe and calls the jobs that the command line calls: nothing is computed here.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from inspect import signature
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, Never, overload

from paddock.arguments import check_type, described
from paddock.config.argument_types import check_callbacks, check_checkpoint
from paddock.config.choice import as_sections, check_known, check_named, check_task, chosen_values
from paddock.config.layouts import parse_layout
from paddock.config.load import merge
from paddock.config.own_module import check_own_recipe, is_own_module, own_values
from paddock.config.recipe import Recipe, recipe_from_dict
from paddock.errors import ConfigError, DataError, bad_value, did_you_mean
from paddock.files import user_path
from paddock.launch.environment import with_free_threads, world_of
from paddock.launch.options import LaunchOptions
from paddock.objects.address import is_address
from paddock.plugins import Loan
from paddock.tasks.registry import datasets_given, task_called
from paddock.telemetry.format import count
from paddock.telemetry.jsonl import OnMetrics
from paddock.training.callbacks import Callback

if TYPE_CHECKING:
    from torch import nn

    from paddock.data.tokenizers.load import Tokenizer
    from paddock.inference.generation.text_generator import Continuation
    from paddock.inference.loaded import LoadedModel
    from paddock.reporting.aligned import Alignment
    from paddock.reporting.history import History

Checkpoint = bool | str | Path | None
DTYPES = ["float32", "bfloat16", "float16"]
"""Of weights that are written for others."""
OWN_MODEL = "name one that `paddock zoo list` shows, or give a torch module whose forward computes the loss"
TEXTS = "a language model continues texts: give one, or a list of them"
LIKE_A_LAYOUT = 'such as "dp2,tp2", or {"tensor": 2}'


class Trainer:
    """One recipe, and what is done with it.

    >>> trainer = Trainer(model="gpt2/tiny", train_dataset=["A text.", "Another one."], overrides={"train.steps": 50})
    >>> trainer.train()["loss"]
    >>> trainer.history.plot()
    >>> trainer.generate("A", max_new_tokens=20)
    """

    def __init__(
        self,
        task: str | None = None,
        model: str | nn.Module | Callable[[], nn.Module] | None = None,
        train_dataset: Any = None,
        eval_dataset: Any = None,
        *,
        recipe: str | Path | None = None,
        args: str | Path | Mapping[str, Any] | None = None,
        overrides: Mapping[str, Any] | None = None,
        parallel: str | Mapping[str, Any] | None = None,
        nproc_per_node: int = 1,
        threads: int | None = None,
        callbacks: Sequence[Callback | OnMetrics] = (),
        run_dir: str | Path | None = None,
        **unknown: Never,
    ) -> None:
        """`model` is a name that `paddock zoo list` shows; or give `recipe`, a name or a YAML file; or `args`, the
        same or a dictionary of sections. Or it is a torch module of your own whose forward computes the loss of a
        batch, or what makes one: a function, or its place, "package.module:function", as several processes need it.
        A dataset is a path, or samples: a list of texts or of records, a dataset of torch's or of Hugging Face's; for
        a module of your own, whatever torch joins to a batch of tensors. `overrides` are fields by dotted name
        ({"train.steps": 100}) or by section. `parallel` is a layout such as "dp2,tp2", or the recipe's section;
        `nproc_per_node` processes run it, each with so many `threads` where the host computes; without a number with
        those that other work leaves free, unless OMP_NUM_THREADS or torch.set_num_threads has said it. `callbacks` are
        functions that hear of every record of metrics, or, in one process, `Callback`s; both may end the run with a
        `Stop`."""
        check_known(unknown, ARGUMENTS)
        check_type("task", task, str, fix="the model goes by its name: Trainer(model=…)")
        is_own = is_own_module(model)
        if not is_own:
            check_type("model", model, str, fix=OWN_MODEL)
        check_type("recipe", recipe, str, Path)
        check_type("args", args, str, Path, Mapping)
        check_type("overrides", overrides, Mapping, fix='such as {"train.steps": 100}')
        check_type("parallel", parallel, str, Mapping, fix=LIKE_A_LAYOUT)
        check_type("nproc_per_node", nproc_per_node, int)
        check_type("threads", threads, int)
        check_type("run_dir", run_dir, str, Path)
        check_callbacks(callbacks)
        changes = as_sections(overrides or {})
        layout = parse_layout(parallel) if isinstance(parallel, str) else {"parallel": dict(parallel or {})}
        self._loan = Loan()
        if is_own:
            given = {"train": train_dataset, "validation": eval_dataset}
            name, values = own_values(model, given, recipe, args, changes, self._loan)
            train_dataset = eval_dataset = None
        else:
            assert model is None or isinstance(model, str)
            if model is recipe is args is None and task is not None:
                check_named(task)
            name, values = chosen_values(model, recipe, args)
        own_task = values.get("task", Recipe.model_fields["task"].default)
        if task is not None:
            check_task(task_called(task), own_task, name)
        data = merge(values, changes).get("data", {})
        values = merge(values, {"data": datasets_given(own_task, data, train_dataset, eval_dataset)})
        self.name = name
        self.recipe = recipe_from_dict(merge(merge(values, layout), changes))
        self.launch = LaunchOptions(nproc_per_node=nproc_per_node, threads=threads)
        self.launch.check()
        if is_own:
            check_own_recipe(self.recipe, world_of(self.launch))
        self.callbacks = list(callbacks)
        self._address = str(run_dir) if is_address(run_dir) else None
        self._opened: tuple[Path, LoadedModel] | None = None
        self.run_dir = None if run_dir is None else _folder(run_dir)
        """Where the newest run of this trainer is, or will be."""

    def __repr__(self) -> str:
        recipe, processes = self.recipe, self.launch.nproc_per_node
        where = f" over {processes} processes" if processes > 1 else ""
        what = f"{recipe.task}, {count(recipe.model.num_parameters())} parameters, {recipe.data.describe()}"
        return f"<Trainer of {self.name} ({what}){where}: {self._state()}>"

    def _state(self) -> str:
        """How far its run is, in a few words."""
        from paddock.reporting.listing import describe_run, is_run

        if self.run_dir is None or not is_run(self.run_dir):
            return "not trained yet"
        run = describe_run(str(self.run_dir))
        loss = "" if run.loss is None else f", loss {run.loss:.4f}"
        return f"{run.name}, {run.state}, step {run.step:,}{loss}"

    def train(
        self, resume_or_finetune_from_checkpoint: Checkpoint = False, do_finetune: bool = False
    ) -> dict[str, Any]:
        """Train to the end of the recipe; returns the step and loss it came to, the best metrics, `run_dir`, and
        `stopped`: None, or what stopped it before its end, such as "SIGTERM"; then it can go on.

        A checkpoint is True (the newest one of this trainer's run), a run, a checkpoint or a Hugging Face folder. It
        is resumed: weights, optimizer, schedule and data position. With `do_finetune` only its weights are taken.

        >>> trainer.train()
        {'step': 50, 'loss': 6.2247, 'best': {'loss': 6.1943, …}, 'run_dir': 'runs/gpt2-tiny-…', 'stopped': None, …}
        >>> trainer.train(resume_or_finetune_from_checkpoint="runs/before", do_finetune=True)
        """
        check_type("do_finetune", do_finetune, bool)
        check_checkpoint("resume_or_finetune_from_checkpoint", resume_or_finetune_from_checkpoint)
        from paddock.jobs.train import train
        from paddock.training.run_directory.directory import outcome_of

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
        outcome = train(
            self.name, recipe, self._launch(), place, callbacks=inside, on_metrics=outside, on_begin=self._begin
        )
        self.recipe = _with(recipe, checkpoint={"load": None, "weights_only": False, "resume": False})
        return {**outcome_of(outcome.run_dir), "run_dir": str(outcome.run_dir), "stopped": outcome.stopped_by}

    def evaluate(self, eval_checkpoint: Checkpoint = False) -> dict[str, Any]:
        """Metrics over the whole validation set. True, or False after training, takes this trainer's newest
        checkpoint; else name a run, a checkpoint or a Hugging Face folder.

        >>> trainer.evaluate()["loss"]
        """
        from paddock.jobs.evaluate import evaluate

        recipe = _with(self.recipe, checkpoint={"load": self._weights(eval_checkpoint, "eval_checkpoint")})
        result = evaluate(recipe, self._launch())
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

        A language model continues its inputs; `sampling` is then max_new_tokens, temperature, top_p or seed.

        >>> trainer.predict(input_data="Leon Berg saw ten owls in Oslo. - How many were there?")
        """
        check_type("top_k", top_k, int)
        check_type("batch_size", batch_size, int)
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
        device = self.recipe.train.device
        with open_predictor(weights, device, batch_size, launch=self._launch(1)) as predictor:
            found = predict(predictor, given, top_k or 1, device=device)
        return [one.answers[0] if top_k is None else one.answers for one in found]

    @property
    def history(self) -> History:
        """What its newest run has recorded: a table, with plots. While the run is under way, what there is so far.

        >>> trainer.history["val.loss"]
        >>> trainer.history.plot("train.loss", smooth=20)
        """
        from paddock.reporting.history import History

        return History(self._run("history"))

    def align(
        self, reference: Trainer | str | Path, *, tolerance: float = 0.01, allow_differences: bool = False
    ) -> Alignment:
        """Its newest run compared with a reference: another trainer's, a run directory, or a log of another program.
        They are aligned if losses and final metrics are no further apart than the tolerance, which is relative. Runs
        of different seeds, data or recipes are an error, unless differences are allowed.

        >>> trainer.align("runs/reference").save("report.html")
        """
        check_type("tolerance", tolerance, float, int)
        check_type("allow_differences", allow_differences, bool)
        other = reference._run("align") if isinstance(reference, Trainer) else reference
        check_type("reference", other, str, Path)
        from paddock.alignment.comparison.runs import Settings
        from paddock.jobs.align import align_runs
        from paddock.reporting.aligned import Alignment

        settings = Settings(tolerance=tolerance, allow_differences=allow_differences)
        return Alignment(align_runs([str(self._run("align")), str(other)], settings, None))

    @property
    def model(self) -> nn.Module:
        """The model at its newest checkpoint: a torch module, in evaluation mode; of a module of your own, such a
        module, while the one that you gave stays as it was.

        >>> sum(weight.numel() for weight in trainer.model.parameters())
        """
        from paddock.models.own.model import OwnModel

        model = self._loaded("model").model
        return model.own.module if isinstance(model, OwnModel) else model

    @property
    def tokenizer(self) -> Tokenizer:
        """Its tokenizer.

        >>> trainer.tokenizer.decode(trainer.tokenizer.encode("A text."))
        """
        return self._loaded("tokenizer").tokenizer

    @overload
    def generate(self, prompts: str | Sequence[str], *, logprobs: None = None, **options: Any) -> list[str]: ...

    @overload
    def generate(self, prompts: str | Sequence[str], *, logprobs: int, **options: Any) -> list[Continuation]: ...

    def generate(
        self, prompts: str | Sequence[str], *, logprobs: int | None = None, **options: Any
    ) -> list[str] | list[Continuation]:
        """What the model at its newest checkpoint makes of the prompts, without them; options are those of
        `paddock generate`. With `logprobs`, texts with how likely each of their tokens was.

        >>> trainer.generate(["The class", "A function"], max_new_tokens=20, temperature=0)
        """
        asked: dict[str, Any] = {"logprobs": logprobs, **options}
        return self._loaded("generate").generate(prompts, **asked)

    def convert(
        self,
        destination: str | Path,
        to: Literal["huggingface", "paddock"] = "huggingface",
        dtype: Literal["float32", "bfloat16", "float16"] = "float32",
    ) -> Path:
        """Write the newest checkpoint as a Hugging Face folder, which transformers reads; returns the folder.

        >>> transformers.AutoModelForCausalLM.from_pretrained(trainer.convert("exported"))
        """
        check_type("destination", destination, str, Path)
        for argument, value, known in (("to", to, ["huggingface", "paddock"]), ("dtype", dtype, DTYPES)):
            if value not in known:
                raise bad_value(argument, value, "there is no such form", did_you_mean(str(value), known))
        from paddock.jobs.convert import convert

        for line in convert(str(self._own_run("convert")), user_path(str(destination)), to, dtype):
            print(f"note: {line}", file=sys.stderr)
        return user_path(str(destination))

    def benchmark(self, *, train: bool = False, warmup: int = 5, iterations: int = 100) -> dict[str, Any]:
        """How fast the recipe computes here, with random samples: forward passes, or training steps.

        >>> trainer.benchmark(train=True, iterations=20)["samples_per_second"]
        """
        check_type("train", train, bool)
        check_type("warmup", warmup, int)
        check_type("iterations", iterations, int)
        from paddock.jobs.benchmark import Measurement, benchmark

        return benchmark(self.recipe, Measurement(train, warmup, iterations), self._launch()) or {}

    def _begin(self, run_dir: Path) -> None:
        """The run that it trains from now on is its newest, whatever becomes of it."""
        self.run_dir = run_dir

    def _launch(self, processes: int | None = None) -> LaunchOptions:
        """How a job is started: with threads chosen now, as the command does, if nobody has. Some jobs have one process
        whatever the trainer has."""
        asked = self.launch if processes is None else replace(self.launch, nproc_per_node=processes)
        return with_free_threads(asked, self.recipe.train.device, library=True)

    def _loaded(self, wanted: str) -> LoadedModel:
        """The model of the newest checkpoint, read once."""
        from paddock.checkpoint.directory import find_checkpoint
        from paddock.inference.loaded import load

        newest = find_checkpoint(self._own_run(wanted))
        if self._opened is None or self._opened[0] != newest:
            self._opened = newest, load(str(newest), device=self.recipe.train.device, threads=self.launch.threads)
        return self._opened[1]

    def _continue(self, weights: str, prompts: list[Any], sampling: dict[str, Any]) -> list[dict[str, Any]]:
        from dataclasses import fields

        from paddock.inference.generation.options import GenerationOptions
        from paddock.jobs.generate import TextJob, continue_text

        known = [field.name for field in fields(GenerationOptions)]
        for name in sampling:
            if name not in known:
                raise ConfigError(f"{name}: there is no such option", fix=did_you_mean(name, known))
        for number, prompt in enumerate(prompts):
            if not isinstance(prompt, str):
                place = f"input_data[{number}]"
                raise ConfigError(f"{place} is {described(prompt)}", why="what is wanted is a text", fix=TEXTS)
        job = TextJob(weights, GenerationOptions(**sampling), tuple(prompts), device=self.recipe.train.device)
        return [one.record() for one in continue_text(job, self._launch(1))]

    def _weights(self, source: Checkpoint, argument: str) -> str:
        check_checkpoint(argument, source)
        if source is True or source in (False, None):
            return str(self._own_run(argument))
        return _existing(source)

    def _own_run(self, argument: str) -> Path:
        """This trainer's run, if it has a checkpoint."""
        from paddock.checkpoint.directory import find_checkpoint

        find_checkpoint(self._run(argument))
        return self._run(argument)

    def _run(self, wanted: str) -> Path:
        """This trainer's run, if it has begun."""
        if self.run_dir is None or not self.run_dir.exists():
            own = wanted in ("history", "align", "model", "tokenizer", "generate", "convert")
            raise ConfigError(
                f"{wanted}: this trainer has no checkpoint yet",
                why="it has trained nothing",
                fix="call train() first" + ("" if own else ", or name a run, a checkpoint or a Hugging Face folder"),
            )
        return self.run_dir


ARGUMENTS = [name for name in signature(Trainer).parameters if name != "unknown"]


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
