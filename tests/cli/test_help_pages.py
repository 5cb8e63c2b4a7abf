"""`paddock help VERB` and `--help SECTION`."""

from __future__ import annotations

import pytest

from paddock.cli.main import overview, run


def page(capsys: pytest.CaptureFixture[str], *arguments: str) -> str:
    try:
        assert run(list(arguments)) == 0
    except SystemExit as stop:
        assert not stop.code
    return capsys.readouterr().out


def test_help_is_asked_for_either_way(capsys: pytest.CaptureFixture[str]) -> None:
    assert page(capsys, "help").rstrip("\n") == overview()
    assert page(capsys, "help", "convert") == page(capsys, "convert", "--help")
    assert page(capsys, "help", "zoo", "check") == page(capsys, "zoo", "check", "--help")
    assert run(["help", "trian"]) == 2
    assert '"train"' in capsys.readouterr().err


def test_one_section_with_other_systems_words(capsys: pytest.CaptureFixture[str]) -> None:
    told = page(capsys, "train", "gpt2/tiny", "--help", "optimizer")
    assert told.startswith("optimizer: The optimizer.")
    assert "--optimizer.lr FLOAT" in told and "The peak learning rate." in told and "--learning-rate" in told
    assert "--train.steps" not in told and "--schedule.warmup" not in told
    usual = page(capsys, "help", "train", "optimizer")
    assert usual == page(capsys, "train", "--help", "optimizer") and "--optimizer.lr FLOAT" in usual


def test_a_section_is_that_of_the_recipe(capsys: pytest.CaptureFixture[str]) -> None:
    assert "--model.arch" in page(capsys, "train", "resnet/18", "--help", "model")
    assert "--model.arch" not in page(capsys, "train", "gpt2/tiny", "--help", "model")
    assert "(default: epoch)" in page(capsys, "train", "resnet/18", "--help", "checkpoint")


def test_there_is_no_such_section(capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["train", "gpt2/tiny", "--help", "optimiser"]) == 2
    assert 'did you mean "optimizer"?' in capsys.readouterr().err
