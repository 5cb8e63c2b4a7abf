"""The command line: overrides of any field, and the flags of other systems."""

from __future__ import annotations

from dataclasses import dataclass

import pytest

from paddock.cli.arguments import RecipeCommand, alias_page, parse_recipe_command
from paddock.config.flags.tables import MEGATRON, SYSTEMS, VIRTUAL_STAGE
from paddock.config.load import load_recipe
from paddock.config.overrides import field_kinds
from paddock.errors import ConfigError
from paddock.launch.placement.find import located


@dataclass(frozen=True)
class Options:
    """Nothing but a run directory."""

    run_dir: str | None = None


def parse(*arguments: str) -> RecipeCommand[Options]:
    return parse_recipe_command(Options, "train", list(arguments))


@pytest.mark.parametrize(
    ("flags", "section", "field", "value"),
    [
        ("--parallel.tensor 2", "parallel", "tensor", 2),
        ("--optimizer.lr 3e-4", "optimizer", "lr", 3e-4),
        ("--optimizer.lr=3e-4", "optimizer", "lr", 3e-4),
        ("--optimizer.weight_decay 0.5", "optimizer", "weight_decay", 0.5),
        ("--optimizer.weight-decay 0.5", "optimizer", "weight_decay", 0.5),
        ("--optimizer.betas 0.8 0.9", "optimizer", "betas", (0.8, 0.9)),
        ("--optimizer.betas 0.8,0.9", "optimizer", "betas", (0.8, 0.9)),
        ("--optimizer.betas [0.8,0.9]", "optimizer", "betas", (0.8, 0.9)),
        ("--data.split 8,1,1", "data", "split", (8, 1, 1)),
        ("--data.source indexed --data.path a", "data", "path", ("a",)),
        ("--data.source indexed --data.path a b", "data", "path", ("a", "b")),
        ("--data.source indexed --data.path 0.7 a 0.3 b --steps 7", "data", "path", (0.7, "a", 0.3, "b")),
        ("--data.source indexed --data.path [0.7,a,0.3,b]", "data", "path", (0.7, "a", 0.3, "b")),
        ("--optimizer.clip null", "optimizer", "clip", None),
        ("--optimizer.clip None", "optimizer", "clip", None),
        ("--checkpoint.load auto", "checkpoint", "load", "auto"),
        ("--batch.global 32", "batch", "global_", 32),
        ("--batch.global null", "batch", "global_", None),
        ("--parallel.data auto", "parallel", "data", "auto"),
        ("--parallel.data 4", "parallel", "data", 4),
        ("--parallel.stages auto", "parallel", "stages", "auto"),
        ("--parallel.stages 0", "parallel", "stages", (0,)),
        ("--parallel.stages 0,1,1", "parallel", "stages", (0, 1, 1)),
        ("--checkpoint.every 5", "checkpoint", "every", 5),
        ("--checkpoint.every epoch", "checkpoint", "every", "epoch"),
        ("--log.tensorboard", "log", "tensorboard", True),
        ("--log.tensorboard true", "log", "tensorboard", True),
        ("--log.tensorboard False", "log", "tensorboard", False),
        ("--log.no-tensorboard", "log", "tensorboard", False),
        ("--schedule.warmup 100", "schedule", "warmup", 100),
        ("--schedule.warmup 0.25", "schedule", "warmup", 0.25),
        ("--precision.loss-scale 128", "precision", "loss_scale", 128.0),
        ("--model.feed-forward 64", "model", "feed_forward", 64),
        ("--steps 7", "train", "steps", 7),
        ("--seed 5", "train", "seed", 5),
        ("--device cpu", "train", "device", "cpu"),
    ],
)
def test_any_field_can_be_overridden(flags: str, section: str, field: str, value: object) -> None:
    command = parse("gpt2/tiny", *flags.split())
    assert getattr(getattr(command.recipe, section), field) == value


@pytest.mark.parametrize(
    ("flags", "what", "why", "fix"),
    [
        (
            "--optimizer.name adamv",
            "optimizer.name = adamv",
            "one of adamw, adam, sgd, adafactor",
            'did you mean "adam',
        ),
        ("--optimizer.betas 0.9", "optimizer.betas = 0.9", "it should have more values", ""),
        ("--optimizer.betas 1 2 3", "optimizer.betas = 1 2 3", "at most 2 items", ""),
        ("--parallel.stages a", "parallel.stages = a", "it should be auto, or it should be a whole number", ""),
        ("--checkpoint.every soon", "checkpoint.every = soon", "a whole number", ""),
        ("--model.layers many", "model.layers = many", "a whole number", ""),
        ("--train.steps 1.5", "train.steps = 1.5", "a whole number", ""),
    ],
)
def test_a_wrong_value_of_a_flag_is_explained_as_in_a_file(flags: str, what: str, why: str, fix: str) -> None:
    with pytest.raises(ConfigError) as caught:
        parse("gpt2/tiny", *flags.split())
    error = caught.value
    assert error.what == what and why in error.why and error.fix.startswith(fix)


def test_the_help_page_shows_what_each_flag_takes(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        parse("gpt2/tiny", "--help")
    page = capsys.readouterr().out
    for line in ("--parallel.stages {auto}|[INT …]", "--optimizer.betas FLOAT FLOAT", "--train.steps INT|{None}"):
        assert line in page
    assert "--optimizer.name {adamw,adam,sgd,adafactor}" in page and "(default: auto)" in page
    assert "--num-layers" in page and "--use-rdma" not in page, "what becomes nothing here is in `paddock flags` alone"


ONEFLOW = """--num-layers 24 --hidden-size 1024 --num-attention-heads 16 --micro-batch-size 4 --global-batch-size 8
  --tensor-model-parallel-size 1 --pipeline-model-parallel-size 1 --num-gpus-per-node 1 --num-nodes 1
  --node-ips 10.11.0.2,10.11.0.3 --train-iters 500000 --learning-rate 0.00015 --min-lr 1.0e-5 --lr-decay-style cosine
  --lr-decay-iters 320000 --lr-warmup-fraction 0.01 --optimizer adamw --weight-decay 1e-2 --clip-grad 1.0
  --dataset /data/gpt/gpt_sample_dataset_text_document --seq-length 1024 --vocab-size 50257 --split 949,50,1
  --save model_save --save-interval 10000 --log-interval 100 --metric-print-format table --checkpoint-activations
  --multihead-attention-fusion --fp16 --use-rdma"""


def test_the_pretraining_command_of_oneflow_gpt(capsys: pytest.CaptureFixture[str]) -> None:
    command = parse("gpt2", *ONEFLOW.split())
    recipe = command.recipe
    assert recipe.model.model_dump() | {"layers": 24, "hidden": 1024, "heads": 16} == recipe.model.model_dump()
    assert recipe.data.path == ("/data/gpt/gpt_sample_dataset_text_document",) and recipe.data.source == "indexed"
    assert recipe.data.split == (949, 50, 1)
    assert (recipe.batch.micro, recipe.batch.global_) == (4, 8)
    assert (recipe.optimizer.lr, recipe.schedule.min_lr, recipe.schedule.warmup) == (1.5e-4, 1e-5, 0.01)
    assert (recipe.schedule.name, recipe.schedule.decay_steps) == ("cosine", 320000)
    assert recipe.precision.compute == "float16" and recipe.parallel.recompute == "full"
    assert (recipe.checkpoint.every, recipe.log.every, recipe.train.steps) == (10000, 100, 500000)
    assert command.options.run_dir == "model_save"
    assert command.launch.nproc_per_node == 1 and command.launch.master_addr is None
    notes = capsys.readouterr().err
    assert "--use-rdma: the collective library picks the transport" in notes
    assert "--multihead-attention-fusion: fused attention is always on" in notes


FORMATS = """--num-layers --hidden-size --num-attention-heads --seq-length --vocab-size --make-vocab-size-divisible-by
  --attention-dropout --hidden-dropout --weight-decay --clip-grad --adam-beta1 --adam-beta2 --adam-eps
  --init-method-std --micro-batch-size --global-batch-size --num-accumulation-steps --train-iters --train-samples
  --optimizer --learning-rate --lr --min-lr --lr-decay-style --lr-decay-iters --lr-warmup-fraction --lr-warmup-iters
  --checkpoint-activations --fp16 --bf16 --loss-scale --initial-loss-scale --loss-scale-window
  --tensor-model-parallel-size --pipeline-model-parallel-size --num-layers-per-virtual-pipeline-stage
  --num-gpus-per-node --num-nodes --node-ips --dataset --data-path --split --seed --load --save --save-interval
  --log-interval --eval-interval --eval-iters --use-rdma --multihead-attention-fusion""".split()


def test_every_flag_of_those_systems_is_in_the_table_and_in_the_help() -> None:
    known = {flag for system in SYSTEMS for alias in system.aliases for flag in alias.flags}
    assert set(FORMATS) <= known
    page = alias_page()
    assert all(flag in page for alias in MEGATRON for flag in alias.flags)


@pytest.mark.parametrize(
    ("flags", "section", "field", "value"),
    [
        ("--adam-beta1 0.8", "optimizer", "betas", (0.8, 0.95)),
        ("--adam-beta2 0.7", "optimizer", "betas", (0.9, 0.7)),
        ("--adam-beta1 0.8 --adam-beta2 0.7", "optimizer", "betas", (0.8, 0.7)),
        ("--micro-batch-size 3", "batch", "global_", None),
        ("--micro-batch-size 3 --global-batch-size 6", "batch", "global_", 6),
        ("--global-batch-size 6", "batch", "micro", None),
        ("--batch.micro 4", "batch", "global_", 8),
        ("--clip-grad 0", "optimizer", "clip", None),
        ("--train-samples 100", "train", "samples", 100),
        ("--train-samples 100", "train", "steps", None),
        ("--bf16", "precision", "compute", "bfloat16"),
        ("--loss-scale-window 1000.0", "precision", "scale_window", 1000),
        ("--seq-length 64", "model", "context", 64),
        ("--seq_length 64", "data", "sequence_length", 64),
        ("--lr=0.5", "optimizer", "lr", 0.5),
        ("--data-path a", "data", "path", ("a",)),
        ("--data-path 0.7 a 0.3 b --lr 0.5", "data", "path", (0.7, "a", 0.3, "b")),
        ("--reset-position-ids", "data", "reset_position_ids", True),
        ("--reset-attention-mask", "data", "reset_attention_mask", True),
        ("--eod-mask-loss --lr 0.5", "data", "eod_mask_loss", True),
        (f"--pipeline-model-parallel-size 2 {VIRTUAL_STAGE} 1", "parallel", "stages", (0, 1, 2, 3)),
        (f"{VIRTUAL_STAGE}=2 --parallel.pipeline=2 --model.layers=8", "parallel", "stages", (0, 0, 1, 1, 2, 2, 3, 3)),
        (f"{VIRTUAL_STAGE} 1 --parallel.pipeline 2", "parallel", "schedule", "interleaved"),
    ],
)
def test_aliases(flags: str, section: str, field: str, value: object) -> None:
    assert getattr(getattr(parse("gpt2/tiny", *flags.split()).recipe, section), field) == value


def test_node_addresses_give_the_rank_and_the_master() -> None:
    launch = parse("gpt2/tiny", *"--num-nodes 2 --node-ips 203.0.113.1,127.0.0.1".split()).launch
    assert launch.nnodes == 2
    here = located(launch)
    assert (here.node_rank, here.master_addr) == (1, "203.0.113.1")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--steps", "5", "gpt2/tiny"], "needs a recipe, before the flags"),
        ([], "needs a recipe(.|\n)*gpt2/tiny"),
        (["gpt2/tiny", "--num-layers"], "--num-layers needs a value"),
        (["gpt2/tiny", "--clip-grad", "much"], "--clip-grad = much"),
        (["gpt2/tiny", "--model.layers", "0"], r"model\.layers = 0(.|\n)*greater than 0"),
        (["gpt2/tiny", "--model.heads", "7"], r"model\.heads = 7(.|\n)*does not divide"),
        (["gpt2/tiny", "--num-layers-per-virtual-pipeline-stage", "2"], "there is no pipeline"),
        (
            [*"gpt2/tiny --num-layers 12 --pipeline-model-parallel-size 2".split(), VIRTUAL_STAGE, "4"],
            r"12 layers over 2 processes(.|\n)*legal: 1, 2, 3$",
        ),
        (["gpt2/tiny", "--parallel.pipeline", "2", VIRTUAL_STAGE, "few"], "few"),
    ],
)
def test_wrong_commands(arguments: list[str], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*arguments)


def test_wrong_flags_exit_with_2() -> None:
    with pytest.raises(ConfigError, match=r"--optimizer\.lrr(.|\n)*--optimizer\.lr\b") as caught:
        parse("gpt2/tiny", "--optimizer.lrr", "1")
    assert caught.value.exit_code == 2


def test_the_help_page_has_every_field_with_its_meaning(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    with pytest.raises(SystemExit) as caught:
        parse("gpt2/tiny", "--help")
    assert caught.value.code == 0
    lines = [line.strip("│ ") for line in capsys.readouterr().out.splitlines()]
    fields = field_kinds(type(load_recipe("gpt2/tiny")))
    assert len(fields) > 50
    for field in fields:
        flag = "--" + field.replace("_", "-")
        at = next(number for number, line in enumerate(lines) if line.split(" ")[0].strip(",") == flag)
        described = " ".join(lines[at : at + 3]).split(" ", 2)[2]
        assert len(described.split("(default")[0]) > 15, f"{flag} is not explained"
    assert any("(default: 192)" in line for line in lines)  # the recipe's own values
