"""The verbs from end to end, in this process, on a model that trains in a second."""

from __future__ import annotations

import json
import math
import shutil
from pathlib import Path
from typing import Any

import pytest
import torch

from paddock.cli.main import VERBS, run
from paddock.config.load import load_recipe, save_recipe
from paddock.data.indexed.writer import IndexedWriter
from paddock.jobs import generate as generate_job
from paddock.telemetry.jsonl import read_metrics
from paddock.testing.tiny import TINY, losses


def test_a_run_directory(trained_run: Path) -> None:
    names = {path.name for path in trained_run.iterdir()}
    assert names == {
        *("config.yaml", "environment.json", "attempts", "metrics.jsonl", "log.txt", "checkpoints", ".lock"),
        *("tokenizer.json", "tokenizer_config.json"),
    }
    assert load_recipe(trained_run / "config.yaml").model.num_parameters() > 0
    environment = json.loads((trained_run / "environment.json").read_text())
    assert environment["torch"] == torch.__version__.split("+")[0] or environment["torch"] == torch.__version__
    assert sorted(path.name for path in (trained_run / "checkpoints").iterdir()) == [
        *("best", "latest", "step-00000003", "step-00000006"),
    ]


def test_its_metrics(trained_run: Path) -> None:
    records = list(read_metrics(trained_run / "metrics.jsonl"))
    assert records[0]["type"] == "METADATA"
    steps = [record["step"] for record in records if "train.loss" in record.get("data", {})]
    assert [step[1] for step in steps] == [1, 2, 3, 4, 5, 6]
    last = [record["data"] for record in records if "train.ips" in record.get("data", {})][-1]
    for name in ("train.loss", "train.lr", "train.grad_norm", "train.ips", "train.tokens_per_second", "train.memory"):
        assert math.isfinite(last[name]) and last[name] > 0
    assert last["train.tokens_per_second"] == pytest.approx(32 * last["train.ips"])
    assert [r["step"][1] for r in records if "val.loss" in r.get("data", {})] == [3, 6]
    assert losses(trained_run)[-1] < losses(trained_run)[0] < 1.1 * math.log(512)


def test_resuming_is_bit_exact(trained_run: Path, tmp_path: Path) -> None:
    part = tmp_path / "part"
    # The schedule's end must be the same; the run is stopped early by asking for fewer steps.
    flags = ["--schedule.decay-steps", "6", "--model.dropout", "0.1", "--run-dir"]
    assert run(["train", *TINY, *flags, str(tmp_path / "whole")]) == 0
    assert run(["train", *TINY, *flags, str(part), "--steps", "3"]) == 0
    assert run(["train", *TINY, *flags, str(part), "--checkpoint.load", "auto"]) == 0
    assert losses(part) == losses(tmp_path / "whole")
    assert losses(part, "val.loss") == losses(tmp_path / "whole", "val.loss")
    assert losses(part) != losses(trained_run)  # dropout is on


def test_continuing_elsewhere(trained_run: Path, tmp_path: Path) -> None:
    further = ["--steps", "8", "--schedule.decay-steps", "6", "--run-dir"]  # the rates of the run that is continued
    assert run(["train", *TINY, *further, str(tmp_path / "b"), "--checkpoint.load", str(trained_run)]) == 0
    assert [
        r["step"][1] for r in read_metrics(tmp_path / "b" / "metrics.jsonl") if "train.loss" in r.get("data", {})
    ] == [7, 8]
    assert run(["train", *TINY, *further, str(tmp_path / "whole")]) == 0
    assert losses(trained_run) + losses(tmp_path / "b") == losses(tmp_path / "whole")


def test_a_run_that_is_at_its_end(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    copy = tmp_path / "copy"
    shutil.copytree(trained_run, copy, symlinks=True)
    before, goes_on = losses(copy), ["--run-dir", str(copy), "--checkpoint.load", "auto"]
    assert run(["train", *TINY, *goes_on]) == 0
    said = capsys.readouterr().err
    assert "nothing to do: the run is at its last step, 6, already" in said and "nan" not in said
    config = (copy / "config.yaml").read_bytes()
    assert run(["train", *TINY, *goes_on, "--steps", "4"]) == 2
    assert f"{copy} is at step 6 already\n  why: the run ends at step 4" in capsys.readouterr().err
    assert (copy / "config.yaml").read_bytes() == config and losses(copy) == before


def test_going_on_from_another_run_that_is_past_the_end(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flags = ["--checkpoint.load", str(trained_run), "--run-dir", str(tmp_path / "other")]
    assert run(["train", *TINY, *flags]) == 2
    assert "is at step 6 already" in (said := capsys.readouterr().err) and "--checkpoint.weights-only" in said
    assert not (tmp_path / "other").exists()
    assert run(["train", *TINY, *flags, "--checkpoint.weights-only", "--steps", "1"]) == 0


def test_evaluate(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", str(trained_run), "--json"]) == 0
    result = json.loads(capsys.readouterr().out)
    assert result["val.perplexity"] == pytest.approx(math.exp(result["val.loss"]))
    assert run(["evaluate", str(trained_run)]) == 0
    captured = capsys.readouterr()
    assert captured.out.startswith(f"val.loss {result['val.loss']:.4f}  val.perplexity")
    # Batches of another size, which no global batch of training is made of, are the same samples: the same loss.
    assert run(["evaluate", str(trained_run), "--batch.micro", "7", "--batch.global", "8", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["val.loss"] == pytest.approx(result["val.loss"], rel=1e-6)


def test_an_evaluation_takes_any_number_of_processes(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Three do not divide the global batch of the training, which an evaluation does not need."""
    results = []
    for processes in ("1", "3"):
        assert run(["evaluate", str(trained_run), "--nproc-per-node", processes, "--json"]) == 0
        results.append(json.loads(capsys.readouterr().out))
    assert results[0]["val.samples"] == results[1]["val.samples"]
    assert results[0]["val.loss"] == pytest.approx(results[1]["val.loss"], rel=1e-6)


def test_an_evaluation_has_a_layout_of_its_own(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    shutil.copytree(trained_run, tmp_path / "run", symlinks=True)
    recipe = load_recipe(trained_run / "config.yaml")
    layout = recipe.parallel.model_copy(update={"data": 2, "tensor": 2, "pipeline": 2, "shard": "parameters"})
    save_recipe(recipe.model_copy(update={"parallel": layout}), tmp_path / "run" / "config.yaml")
    losses = []
    for place in (trained_run, tmp_path / "run"):
        assert run(["evaluate", str(place), "--json"]) == 0
        losses.append(json.loads(capsys.readouterr().out)["val.loss"])
    assert losses[0] == losses[1]


def test_evaluating_a_recipe_needs_weights(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["evaluate", *TINY]) == 2
    assert "there are no weights to evaluate" in capsys.readouterr().err
    assert run(["evaluate", *TINY, "--checkpoint.load", str(trained_run), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"].endswith("step-00000006")


def test_generate(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    base = ["generate", str(trained_run), "--max-new-tokens", "5", "--json"]
    assert run([*base, "--prompt", "The class", "--seed", "3"]) == 0
    first = json.loads(capsys.readouterr().out)
    assert first[0]["prompt"] == "The class" and 0 < first[0]["tokens"] <= 5
    (tmp_path / "prompts.txt").write_text("The class\n\nA name\n")
    assert run([*base, "--prompt-file", str(tmp_path / "prompts.txt"), "--seed", "3"]) == 0
    both = json.loads(capsys.readouterr().out)
    assert both[0] == first[0] and both[1]["prompt"] == "A name"
    assert run(["generate", str(trained_run), "--prompt", "The class", "--seed", "3", "--max-new-tokens", "5"]) == 0
    assert capsys.readouterr().out == "The class" + first[0]["text"] + "\n"


def test_convert_there_and_back(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder, back = tmp_path / "hf", tmp_path / "back"
    assert run(["convert", str(trained_run), str(folder)]) == 0
    assert run(["convert", str(folder), str(back), "--to", "paddock"]) == 0
    capsys.readouterr()
    answers = []
    for model in (trained_run, folder, back):
        assert run(["generate", str(model), "--prompt", "A name", "--temperature", "0", "--json"]) == 2  # context 32
        assert (
            run(["generate", str(model), "--prompt", "A name", "--temperature", "0", "--max-new-tokens", "8", "--json"])
            == 0
        )
        answers.append(capsys.readouterr().out)
    assert answers[0] == answers[1] == answers[2]


def test_transformers_loads_the_folder_with_its_tokenizer(trained_run: Path, tmp_path: Path) -> None:
    from transformers import AutoModelForCausalLM, AutoTokenizer

    from paddock.inference.trained import open_trained

    assert run(["convert", str(trained_run), str(tmp_path / "hf")]) == 0
    theirs = AutoModelForCausalLM.from_pretrained(tmp_path / "hf").eval()
    tokenizer = AutoTokenizer.from_pretrained(tmp_path / "hf")
    ours = open_trained(str(trained_run), torch.device("cpu"))
    text = "The class statement is executed; größer."
    ids = tokenizer(text)["input_ids"]
    assert ours.tokenizer is not None
    assert ids == ours.tokenizer.encode(text) and tokenizer.decode(ids) == text
    with torch.no_grad():
        assert torch.allclose(theirs(torch.tensor([ids])).logits, ours.model(torch.tensor([ids])), atol=1e-4)


def test_training_from_a_huggingface_folder(trained_run: Path, tmp_path: Path) -> None:
    assert run(["convert", str(trained_run), str(tmp_path / "hf")]) == 0
    flags = ["--checkpoint.load", str(tmp_path / "hf"), "--run-dir", str(tmp_path / "tuned"), "--steps", "2"]
    assert run(["train", *TINY, *flags]) == 0
    flags = ["--checkpoint.load", str(trained_run), "--checkpoint.weights-only", "--steps", "2"]
    assert run(["train", *TINY, *flags, "--run-dir", str(tmp_path / "same")]) == 0
    assert losses(tmp_path / "tuned") == losses(tmp_path / "same")  # the weights of the run, and a new beginning
    assert losses(tmp_path / "tuned")[0] != pytest.approx(losses(trained_run)[0], rel=1e-3)


def test_text_ends_before_a_stop_string(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["generate", str(trained_run), "--prompt", "The", "--max-new-tokens", "20", "--json"]
    assert run(flags) == 0
    (whole,) = json.loads(capsys.readouterr().out)
    middle = whole["text"][len(whole["text"]) // 3 :][:3]
    assert run([*flags, "--stop", middle]) == 0
    (cut,) = json.loads(capsys.readouterr().out)
    assert cut["text"] == whole["text"][: whole["text"].index(middle)]
    assert cut["tokens"] < whole["tokens"]
    assert run([*flags, "--stop", ""]) == 2
    assert "--stop" in capsys.readouterr().err


@pytest.mark.parametrize("compute", ["bfloat16", "float16"])
def test_mixed_precision_follows_float32(trained_run: Path, tmp_path: Path, compute: str) -> None:
    flags = ["--precision.compute", compute, "--run-dir", str(tmp_path / "run"), "--parallel.recompute", "full"]
    assert run(["train", *TINY, *flags]) == 0
    for mixed, exact in zip(losses(tmp_path / "run"), losses(trained_run), strict=True):
        assert mixed == pytest.approx(exact, rel=2e-2)


def test_float16_skips_overflowing_steps_and_counts_them(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flags = ["--precision.compute", "float16", "--precision.initial-scale", "1e9", "--run-dir", str(tmp_path / "run")]
    assert run(["train", *TINY, *flags, "--steps", "20", "--evaluate.every", "None"]) == 0
    skipped = losses(tmp_path / "run", "train.skipped_steps")
    assert 1 <= skipped[-1] < 20
    assert f"float16 could not hold: {skipped[-1]:.0f}\n" in capsys.readouterr().err
    assert losses(tmp_path / "run", "train.loss_scale")[-1] < 1e9


def test_epochs_and_samples_end_a_run(tmp_path: Path) -> None:
    flags = ["--evaluate.every", "None", "--checkpoint.every", "None", "--log.every", "1000"]
    assert (
        run(["train", *TINY, *flags, "--steps", "None", "--train.samples", "20", "--run-dir", str(tmp_path / "s")]) == 0
    )
    assert (tmp_path / "s" / "checkpoints" / "latest").resolve().name == "step-00000003"  # 20 samples, 8 a step
    one_epoch = ["--steps", "None", "--train.epochs", "1", "--batch.global", "1000", "--batch.micro", "100"]
    assert run(["train", *TINY, *flags, *one_epoch, "--run-dir", str(tmp_path / "e")]) == 0
    description = json.loads((tmp_path / "e" / "checkpoints" / "latest" / "checkpoint.json").read_text())
    assert 3000 <= description["samples"] <= 9000


def test_tensorboard(tmp_path: Path) -> None:
    assert run(["train", *TINY, "--steps", "1", "--log.tensorboard", "--run-dir", str(tmp_path / "run")]) == 0
    assert list((tmp_path / "run" / "tensorboard").glob("events*"))


def test_utilisation_against_a_measured_peak(tmp_path: Path) -> None:
    assert run(["train", *TINY, "--log.measure-peak", "--run-dir", str(tmp_path / "run")]) == 0
    assert losses(tmp_path / "run", "train.utilisation")[-1] > 0


def test_dry_run_and_check_config(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert run(["train", *TINY, "--dry-run", "--nproc-per-node", "2"]) == 0
    dry = capsys.readouterr().out
    assert "global 8 = micro 2 × data 2 × accumulation 2" in dry and "parameters: " in dry
    assert list(tmp_path.iterdir()) == []
    assert run(["check", "config", *TINY, "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert all(rule["holds"] for rule in report["rules"]) and report["recipe"]["batch"]["global"] == 8
    assert run(["check", "config", *TINY, "--batch.micro", "3"]) == 2
    captured = capsys.readouterr()
    assert "FAIL batch" in captured.out and "1 rule is broken: batch" in captured.err


def test_doctor(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["doctor", "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    assert "cpu" in [device["name"] for device in report["devices"] if device["available"]]
    assert run(["doctor"]) == 0
    assert "gloo" in capsys.readouterr().out


def test_every_verb_has_help(capsys: pytest.CaptureFixture[str]) -> None:
    assert run([]) == 0
    page = capsys.readouterr().out
    assert all(verb in page for verb in VERBS)
    for verb in VERBS:
        try:
            assert run([verb, "--help"]) == 0
        except SystemExit as exit_:
            assert exit_.code == 0
        assert "usage: paddock " + verb in capsys.readouterr().out


def test_the_help_of_evaluate_names_all_it_takes(trained_run: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for subject in ([], ["gpt2/tiny"], [str(trained_run)]):
        with pytest.raises(SystemExit):
            run(["evaluate", *subject, "--help"])
        page = capsys.readouterr().out
        assert "usage: paddock evaluate RUN|MODEL|RECIPE" in page and "and OneFlow-GPT that work here too" in page


def test_a_moved_run_still_works(trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    shutil.copytree(trained_run, tmp_path / "moved", symlinks=True)
    assert run(["evaluate", str(tmp_path / "moved"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["checkpoint"].startswith(str((tmp_path / "moved").resolve()))


ONEFLOW = """--num-layers 2 --hidden-size 32 --num-attention-heads 4 --micro-batch-size 2 --global-batch-size 4
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-gpus-per-node 1 --num-nodes 1
  --node-ips 10.11.0.2,10.11.0.3 --train-iters 4 --learning-rate 0.00015 --min-lr 1.0e-5 --lr-decay-style cosine
  --lr-decay-iters 320000 --lr-warmup-fraction 0.01 --optimizer adamw --weight-decay 1e-2 --clip-grad 1.0
  --seq-length 32 --vocab-size 512 --split 949,50,1 --save-interval 10000 --log-interval 1
  --metric-print-format table --checkpoint-activations --multihead-attention-fusion --fp16 --use-rdma"""


def test_the_pretraining_command_of_oneflow_gpt_runs(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Their command (smaller, for a test) on an indexed corpus, with `paddock train gpt2` in place of theirs."""
    with IndexedWriter(tmp_path / "gpt_sample_dataset_text_document", vocab=512) as writer:
        for document in range(100):
            writer.add_document([(7 * document + position) % 512 for position in range(50)])
    places = ["--dataset", str(tmp_path / "gpt_sample_dataset_text_document"), "--save", str(tmp_path / "model_save")]
    assert run(["train", "gpt2", *ONEFLOW.split(), *places]) == 0
    assert len(losses(tmp_path / "model_save")) == 4
    said = capsys.readouterr().err
    assert "next: paddock evaluate" in said and "next: paddock generate" not in said  # there is no tokenizer
    assert (tmp_path / "model_save" / "checkpoints" / "latest").resolve().name == "step-00000004"
    # And going on as they do: --load and --save name the same place.
    places += ["--load", str(tmp_path / "model_save")]
    assert run(["train", "gpt2", *ONEFLOW.split(), *places, "--train-iters", "6"]) == 0
    assert len(losses(tmp_path / "model_save")) == 6


@pytest.mark.parametrize("flags", [["--optimizer.name", "sgd", "--optimizer.lr", "0.1"], ["--optimizer.name", "adam"]])
def test_every_optimizer_learns_and_resumes(tmp_path: Path, flags: list[str]) -> None:
    whole, part = ["--run-dir", str(tmp_path / "whole")], ["--run-dir", str(tmp_path / "part")]
    flags = [*flags, "--schedule.name", "linear", "--schedule.decay-steps", "6"]
    assert run(["train", *TINY, *flags, *whole]) == 0
    assert run(["train", *TINY, *flags, *part, "--steps", "3"]) == 0
    assert run(["train", *TINY, *flags, *part, "--checkpoint.load", "auto"]) == 0
    assert losses(tmp_path / "part") == losses(tmp_path / "whole")
    assert losses(tmp_path / "whole")[-1] < losses(tmp_path / "whole")[0]


@pytest.mark.parametrize("flags", [{"avx2"}, {"avx512_bf16"}])
def test_a_type_that_the_processor_emulates_is_warned_of(
    flags: set[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("paddock.devices.cpu.cpu_flags", lambda: flags)
    assert run(["train", *TINY, "--steps", "1", "--bf16", "--device", "cpu", "--run-dir", str(tmp_path / "run")]) == 0
    (said,) = [line for line in capsys.readouterr().err.splitlines() if line.startswith("precision: ")]
    assert ("has no bfloat16 instructions" in said) == (flags == {"avx2"})


def test_texts_in_a_file_that_a_stopped_job_goes_on_with(
    trained_run: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever was there when it was stopped, a line cut in the middle too, the file is that of one that was not."""
    monkeypatch.setattr(generate_job, "BLOCK", 2)
    (tmp_path / "prompts.txt").write_text("".join(f"The class {number}\n" for number in range(5)))
    flags = ["--prompt-file", str(tmp_path / "prompts.txt"), "--max-new-tokens", "4", "--num-return-sequences", "2"]
    base = ["generate", str(trained_run), *flags, "--seed", "3"]
    whole, other = tmp_path / "whole.jsonl", tmp_path / "other.jsonl"
    assert run([*base, "--output", str(whole)]) == 0
    assert capsys.readouterr().out == "" and len(whole.read_text().splitlines()) == 10
    assert run([*base, "--json"]) == 0
    assert json.loads(capsys.readouterr().out) == [json.loads(line) for line in whole.read_text().splitlines()]
    real, blocks = generate_job.Records.add, 0

    def add(self: generate_job.Records, records: list[dict[str, Any]]) -> None:
        nonlocal blocks
        blocks += 1
        if blocks == 2:
            raise KeyboardInterrupt
        real(self, records)

    with monkeypatch.context() as patch:
        patch.setattr(generate_job.Records, "add", add)
        assert run([*base, "--output", str(other)]) == 130
    partial = tmp_path / "other.jsonl.partial"
    assert len(partial.read_text().splitlines()) == 4 and not other.exists()
    with open(partial, "a") as stream:
        stream.write('{"prompt": "The class 2", "text": "x", "tokens": 1, "continues": true}\n{"prompt": "The cl')
    assert run([*base, "--output", str(other), "--temperature", "0.5"]) == 2
    assert "another temperature" in capsys.readouterr().err
    (tmp_path / "prompts.txt").write_text("".join(f"The class {number + 7}\n" for number in range(5)))
    assert run([*base, "--output", str(other)]) == 4
    assert "prompt 1 is another" in capsys.readouterr().err
    (tmp_path / "prompts.txt").write_text("".join(f"The class {number}\n" for number in range(5)))
    assert run([*base, "--output", str(other)]) == 0
    assert other.read_bytes() == whole.read_bytes()
    assert sorted(path.name for path in tmp_path.iterdir()) == ["other.jsonl", "prompts.txt", "whole.jsonl"]
    assert run([*base, "--output", str(other)]) == 2
    assert "other.jsonl exists" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("flags", "told"),
    [
        (["--nproc-per-node", "3", "--parallel.tensor", "2"], "3 processes do not divide by 2"),
        (["--nproc-per-node", "3", "--parallel.tensor", "3"], "do not divide by 3"),
        (["--nproc-per-node", "64", "--parallel.pipeline", "64"], "64 stages"),
        (["--nproc-per-node", "2", "--parallel.pipeline", "2", "--parallel.stages", "0"], "stages"),
        (["--parallel.tensor", "2"], "1 process does not divide by 2"),
        (["--max-batch", "0"], "--max-batch"),
        (["--cache-gigabytes", "-1"], "--cache-gigabytes"),
    ],
)
def test_layouts_that_a_model_cannot_take(
    trained_run: Path, capsys: pytest.CaptureFixture[str], flags: list[str], told: str
) -> None:
    assert run(["generate", str(trained_run), "--prompt", "The", "--max-new-tokens", "4", *flags]) == 2
    assert told in capsys.readouterr().err
