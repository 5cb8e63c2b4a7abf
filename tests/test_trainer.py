"""The Trainer: the verbs as methods, on the same recipes, jobs and run directories."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from paddock import Trainer
from paddock.cli.main import run
from paddock.errors import ConfigError, DataError
from paddock.testing.samples.texts import write_squad
from paddock.training.callbacks import Callback
from paddock.training.run import TrainingRun

SMALL: dict[str, Any] = {
    "model": {"layers": 2, "hidden": 32, "heads": 2, "context": 32, "vocab": 400, "dropout": 0.0},
    "data": {"sequence_length": 32},
    "batch": {"micro": 4, "global": 8},
    "train.steps": 4,
    "evaluate": {"every": 4, "batches": 2},
    "checkpoint.every": 2,
    "log.every": 1,
    "schedule": {"warmup": 1, "decay_steps": 4},
}


def small(tmp_path: Path, **arguments: Any) -> Trainer:
    overrides = SMALL | arguments.pop("overrides", {})
    return Trainer(recipe="gpt2/tiny", overrides=overrides, run_dir=tmp_path / "run", **arguments)


def test_train_evaluate_predict(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    heard: list[tuple[int, dict[str, Any]]] = []
    trainer = small(tmp_path, callbacks=[lambda step, metrics: heard.append((step, metrics))])
    result = trainer.train()
    assert result["step"] == 4 and result["run_dir"] == str(tmp_path / "run") and result["best_step"] == 4
    assert [step for step, metrics in heard if "train.loss" in metrics] == [1, 2, 3, 4]
    assert heard[-1][0] == 4 and "val.loss" in heard[-1][1]
    measured = trainer.evaluate(eval_checkpoint=True)
    assert measured["loss"] > 0 and measured == trainer.evaluate() | {
        name: measured[name] for name in ("ips", "seconds")
    }
    capsys.readouterr()
    assert run(["evaluate", str(tmp_path / "run"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["val.loss"] == measured["loss"]
    (text,) = trainer.predict(predict_checkpoint=True, input_data="The", max_new_tokens=4, temperature=0.0)
    assert text["prompt"] == "The" and text["tokens"] == 4
    with pytest.raises(ConfigError, match="there is no such option"):
        trainer.predict(input_data="The", temprature=0.0)


def test_six_lines_answer_questions(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfd: Any) -> None:
    """As users of MindFormers write them, on a small model and questions in SQuAD's form."""
    monkeypatch.chdir(tmp_path)
    write_squad(Path("squad"), train=3000, validation=120)
    trainer = Trainer(task="question_answering", model="bert_tiny", train_dataset="./squad/", eval_dataset="./squad/")
    trainer.train()
    measured = trainer.evaluate(eval_checkpoint=True)
    assert measured["exact_match"] > 90 and measured["f1"] >= measured["exact_match"]
    assert "QA Metric = {'QA Metric': {'exact_match': " in capfd.readouterr().err
    context = "On Friday Clara Weber saw nine white swans in Vienna. It was a quiet morning."
    given = [f"{context} - In which city was it?", {"context": context, "question": "How many were there?"}]
    city, number = trainer.predict(predict_checkpoint=True, input_data=given)
    assert city == {"text": "Vienna", "score": city["score"], "start": 46, "end": 52}
    assert number["text"] == "nine" and 0 < number["score"] <= 1 and round(number["score"], 4) == number["score"]
    tuned = Trainer(model="bert_tiny", train_dataset="squad", eval_dataset="squad", overrides={"train.steps": 2})
    again = tuned.train(resume_or_finetune_from_checkpoint=str(trainer.run_dir), do_finetune=True)
    assert again["step"] == 2 and again["best"]["exact_match"] > 80
    with pytest.raises(ConfigError, match="a question_answering model writes no text"):
        trainer.predict(input_data="x - y", temperature=1.0)


def test_resume_and_finetune(tmp_path: Path) -> None:
    whole = small(tmp_path / "whole").train()
    part = small(tmp_path / "parts", overrides={"train.steps": 2})
    part.train()
    rest = small(tmp_path / "parts")
    resumed = rest.train(resume_or_finetune_from_checkpoint=True)
    assert resumed["step"] == 4 and resumed["loss"] == whole["loss"]
    tuned = small(tmp_path / "tuned")
    result = tuned.train(resume_or_finetune_from_checkpoint=str(tmp_path / "parts" / "run"), do_finetune=True)
    assert result["step"] == 4 and result["loss"] < whole["loss"]
    again = tuned.train(resume_or_finetune_from_checkpoint=True, do_finetune=True)
    assert again["run_dir"] != result["run_dir"], "a new run has a directory of its own"


def test_over_two_processes(tmp_path: Path) -> None:
    heard: list[int] = []
    trainer = small(tmp_path, parallel="dp2", nproc_per_node=2, callbacks=[lambda step, metrics: heard.append(step)])
    alone = small(tmp_path / "alone")
    assert trainer.train()["loss"] == pytest.approx(alone.train()["loss"], rel=1e-5)
    assert heard[-1] == 4
    assert trainer.evaluate()["loss"] == pytest.approx(alone.evaluate()["loss"], rel=1e-5)


class StopAfterTwo(Callback):
    def __init__(self) -> None:
        self.heard: list[str] = []

    def on_start(self, run: TrainingRun) -> None:
        self.heard.append("start")

    def on_step(self, run: TrainingRun, metrics: dict[str, float] | None) -> None:
        self.heard.append(f"step {run.progress.step}")
        if run.progress.step == 2:
            run.stop("enough")

    def on_end(self, run: TrainingRun) -> None:
        self.heard.append(f"end, stopped by {run.progress.stopped_by}")


def test_a_callback_sees_the_run_and_may_stop_it(tmp_path: Path, capfd: Any) -> None:
    callback = StopAfterTwo()
    result = small(tmp_path, callbacks=[callback]).train()
    assert callback.heard == ["start", "step 1", "step 2", "step 3", "end, stopped by enough"]  # one step is under way
    assert result["step"] == 3
    assert "stopped by enough; a checkpoint is saved" in capfd.readouterr().err


def test_a_callback_of_this_process_does_not_reach_others(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="StopAfterTwo is an object of this process"):
        small(tmp_path, callbacks=[StopAfterTwo()], nproc_per_node=2).train()


def test_an_error_of_a_callback_does_not_cost_the_run(tmp_path: Path) -> None:
    def fails(step: int, metrics: dict[str, Any]) -> None:
        raise KeyError("mine")

    trainer = small(tmp_path, callbacks=[fails])
    with pytest.raises(KeyError, match="mine"):
        trainer.train()
    assert (tmp_path / "run" / "checkpoints" / "step-00000004").is_dir()


def test_ways_to_name_a_recipe() -> None:
    by_model = Trainer(task="text_generation", model="gpt2_13b")
    assert by_model.recipe == Trainer(recipe="gpt2/13b").recipe == Trainer(args="gpt2/13b").recipe
    given = {"extends": "gpt2/13b", "train": {"steps": 7}}
    assert Trainer(args=given).recipe == Trainer(model="gpt2_13b", overrides={"train.steps": 7}).recipe
    assert Trainer(args={"train.steps": 7}, model="gpt2_13b").recipe.train.steps == 7
    assert Trainer(model="gpt2", parallel={"tensor": 2}).recipe.parallel.tensor == 2
    corpus = Trainer(task="language_modeling", model="gpt2", train_dataset="corpus", eval_dataset="corpus").recipe
    assert corpus.data.describe() == "indexed corpus"
    for name in ("prompts.txt", "prompts.jsonl.gz"):
        text: Any = Trainer(model="gpt2/magicprompt", train_dataset=name).recipe.data
        assert (text.source, text.path) == ("text", (name,))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"model": "gpt2_13"}, "gpt2_13b"),
        ({}, "no model is named"),
        ({"model": "gpt2", "recipe": "gpt2/tiny"}, "model and recipe name a recipe"),
        ({"model": "gpt2", "task": "text_generatoin"}, "did you mean"),
        ({"model": "gpt2", "task": "question_answering"}, "is a recipe for language_modeling"),
        ({"model": "gpt2", "overrides": {"train.stepps": 1}}, "steps"),
        ({"model": "gpt2", "train_dataset": "a", "eval_dataset": "b"}, "data.split"),
    ],
)
def test_names_that_are_wrong(arguments: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        Trainer(**arguments)


def test_checkpoints_that_are_not_there(tmp_path: Path) -> None:
    trainer = small(tmp_path)
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        trainer.evaluate(eval_checkpoint=True)
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        trainer.predict(input_data="x")
    with pytest.raises(ConfigError, match="do_finetune = True without a checkpoint"):
        trainer.train(do_finetune=True)
    with pytest.raises(DataError, match="there is no checkpoint mindspore_bert"):
        trainer.train(resume_or_finetune_from_checkpoint="mindspore_bert")
    with pytest.raises(ConfigError, match="has no checkpoint yet"):
        trainer.train(resume_or_finetune_from_checkpoint=True)
    with pytest.raises(ConfigError, match="there is no input_data"):
        trainer.predict()
    assert not (tmp_path / "run").exists()


SCRIPT = """
from paddock import Trainer
small = {"model": {"layers": 2, "hidden": 32, "heads": 2}, "train.steps": 2, "data.workers": 1, "evaluate.batches": 1}
trainer = Trainer(task="question_answering", model="bert_tiny", overrides=small, run_dir="run")
print(trainer.train()["step"])
print(len(trainer.evaluate(eval_checkpoint=True)) > 2)
print(len(trainer.predict(predict_checkpoint=True, input_data=["Anna saw a fox. - Who saw it?"] * 2)))
"""


@pytest.mark.parametrize("way", ["file", "standard input"])
def test_a_script_is_run_once(tmp_path: Path, way: str) -> None:
    """People write their lines without a guard for processes that import them again; or pipe them into Python."""
    (tmp_path / "script.py").write_text(SCRIPT)
    command = [sys.executable, *(["script.py"] if way == "file" else ["-"])]
    done = subprocess.run(command, input=SCRIPT, cwd=tmp_path, capture_output=True, text=True)
    assert (done.returncode, done.stdout.split()) == (0, ["2", "True", "2"]), done.stderr
