"""The parameters of Tecorigin's ModelZoo, spelt as there: every recipe answers to all of them."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

import pytest

from paddock.cli.arguments import RecipeCommand, alias_page, parse_recipe_command
from paddock.config.load import recipe_names
from paddock.errors import ConfigError, DataError

PARAMETERS = """--batch_size 2 --epoch 3 --step 5 --dataset_path somewhere --lr 0.01 --device cpu --autocast True
  --nproc_per_node 2 --nnode 2 --node_rank 1 --master_addr 10.0.0.1 --master_port 29501""".split()


@dataclass(frozen=True)
class Options:
    """Nothing but a run directory."""

    run_dir: str | None = None


def parse(*arguments: str) -> RecipeCommand[Options]:
    return parse_recipe_command(Options, "train", list(arguments))


@pytest.mark.parametrize("name", recipe_names())
def test_every_recipe_answers_to_the_parameters(name: str) -> None:
    command = parse("--model_name", name, *PARAMETERS)
    recipe, launch = command.recipe, command.launch
    assert command.name == name
    assert (recipe.batch.micro, recipe.batch.global_) == (2, None)
    assert (recipe.train.epochs, recipe.train.steps, recipe.train.device) == (3, 5, "cpu")
    assert recipe.optimizer.lr == 0.01 and recipe.precision.compute in ("bfloat16", "float16")
    assert recipe.data.source not in ("synthetic", "embedded", "shapes") and "somewhere" in recipe.data.describe()
    assert (launch.nproc_per_node, launch.nnodes, launch.node_rank) == (2, 2, 1)
    assert (launch.master_addr, launch.master_port) == ("10.0.0.1", 29501)


def test_every_parameter_is_in_the_help() -> None:
    page = alias_page()
    for flag in ("--model_name", "--batch_size", "--epoch", "--step", "--dataset_path", "--lr", "--device", "--nnode"):
        assert f"  {flag} " in page or f" {flag} " in page, flag
    assert "--autocast" in page


@pytest.mark.parametrize(
    ("flags", "section", "field", "value"),
    [
        ("--step 7", "train", "steps", 7),
        ("--step 0", "train", "steps", 600),
        ("--step -1", "train", "steps", 600),
        ("--epoch 2", "train", "steps", None),
        ("--epoch 2 --step -1", "train", "steps", None),
        ("--epoch 2 --step 9", "train", "steps", 9),
        ("--step 9 --epoch 2", "train", "epochs", 2),
        ("--batch_size 3", "batch", "micro", 3),
        ("--batch_size 3 --batch.global 6", "batch", "global_", 6),
        ("--batch_size=3", "batch", "global_", None),
        ("--autocast False", "precision", "compute", "float32"),
        ("--autocast false --precision.compute float16", "precision", "compute", "float32"),
        ("--autocast True --device sdaa", "precision", "compute", "float16"),
        ("--device cuda --autocast=True", "precision", "compute", "bfloat16"),
        ("--dataset_path corpus_text_document", "data", "source", "indexed"),
        ("--dataset_path prompts.txt", "data", "source", "text"),
        ("--dataset-path prompts.txt", "data", "path", ("prompts.txt",)),
        ("--dataset_path=", "data", "source", "embedded"),
    ],
)
def test_what_a_parameter_means(flags: str, section: str, field: str, value: object) -> None:
    assert getattr(getattr(parse("gpt2/tiny", *flags.split()).recipe, section), field) == value


def test_a_recipe_has_the_names_of_the_model_zoo() -> None:
    assert parse("--model_name", "resnet50").recipe.model.model_dump()["arch"] == "resnet50"
    assert parse("resnet/50", "--model_name", "resnet50").name == "resnet/50"
    assert parse("--steps", "2", "--model-name=gpt2/tiny").recipe.train.steps == 2


def test_a_batch_is_of_each_rank_or_global_by_its_spelling(capsys: pytest.CaptureFixture[str]) -> None:
    """The ImageNet example's --batch-size is the global batch, the ModelZoo's --batch_size that of a rank."""
    example, zoo = (parse("resnet/50", flag, "32").recipe.batch for flag in ("--batch-size", "--batch_size"))
    assert (example.global_, example.micro) == (32, None) and (zoo.global_, zoo.micro) == (None, 32)
    assert "--batch_size: samples of each process" in capsys.readouterr().err


def test_the_type_for_mixed_precision_is_the_recipes_own_where_the_device_has_it() -> None:
    assert parse("t5/base", "--autocast", "True", "--device", "mlu").recipe.precision.compute == "bfloat16"
    assert parse("t5/base", "--autocast", "True", "--device", "sdaa").recipe.precision.compute == "float16"


def test_a_folder_of_pairs_has_its_files_found_by_their_names(tmp_path: Path) -> None:
    for name in ("train.tsv", "dev.tsv", "readme.md"):
        (tmp_path / name).write_text("x")
    data = parse("t5/reverse", "--dataset_path", str(tmp_path)).recipe.data.model_dump()
    assert data["source"] == "tsv"
    assert (data["train"], data["validation"]) == ((str(tmp_path / "train.tsv"),), (str(tmp_path / "dev.tsv"),))
    (tmp_path / "val.tsv").write_text("x")
    with pytest.raises(DataError, match="1 training files and 2 validation files"):
        parse("t5/reverse", "--dataset_path", str(tmp_path))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ("gpt2/tiny --model_name gpt2/117m", "the recipe is gpt2/tiny, and it would be ignored"),
        ("--model_name gpt2/tinny", 'there is no recipe "gpt2/tinny"'),
        ("gpt2/tiny --autocast maybe", "--autocast = maybe(.|\n)*True or False"),
        ("gpt2/tiny --step soon", "--step = soon(.|\n)*a number"),
        ("gpt2/tiny --epoch 0", r"train\.epochs = 0(.|\n)*greater than 0"),
        ("gpt2/tiny --batch_size 0", r"batch\.micro = 0(.|\n)*greater than 0"),
        ("gpt2/tiny --autocast True --device toaster", "there is no such device"),
    ],
)
def test_wrong_parameters(arguments: str, message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        parse(*arguments.split())
