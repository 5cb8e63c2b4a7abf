"""Megatron-LM's parser, flag by flag: each is mapped, told what happens instead, or refused with the reason."""

from __future__ import annotations

from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.config.flags.translation import alias_flags, translate
from paddock.config.load import load_without_validation
from paddock.errors import UserError

NAMES = Path(__file__).with_name("data") / "megatron_flags.txt"
FLAGS = dict(line.split() for line in NAMES.read_text().splitlines() if not line.startswith("#"))
OWN = {"--node-rank", "--master-port"}
"""Spelt here as there."""
END = ["--behind", "7"]
"""Stays as it is, being unknown."""
RECIPE = load_without_validation("gpt2/tiny")


def is_answered(flag: str, values: list[str]) -> bool:
    """Whether a flag is known, with just the values that are its own."""
    try:
        words, _ = translate([flag, *values, *END], RECIPE)
    except UserError as error:
        return bool(error.why and error.fix)
    left_as_it_is = flag in words and flag not in {*alias_flags(RECIPE), *OWN}
    is_whole = END[0] in words and words[words.index(END[0]) + 1] == END[1]
    return is_whole and words[0].startswith("--") and not left_as_it_is


@pytest.mark.parametrize("values", ["0", "1", "+"])
def test_every_flag_gets_an_answer(values: str) -> None:
    given = {"0": [], "1": ["3"], "+": ["3", "4"]}[values]
    flags = [flag for flag, takes in FLAGS.items() if takes == values]
    assert len(flags) > 10
    assert [flag for flag in flags if not is_answered(flag, given)] == []


def test_a_family_is_told_once_however_it_is_spelt(capsys: pytest.CaptureFixture[str]) -> None:
    words = ["--flight-recorder-trace-buffer-size", "-1", "--no-flight-recorder-dump-on-timeout"]
    words += ["--megatron_fsdp_version=2", "--gtp-remat-opt-in-modules", "one", "two"]
    assert translate([*words, *END], RECIPE)[0] == END
    assert all(flag in "".join(translate(words, RECIPE)[1]) for flag in words if flag.startswith("--n"))
    for flag in ("--no-fp8-wgrad", "--disable-mamba-mem-eff-path", "--mup-output-mult=2"):
        with pytest.raises(UserError, match=flag.partition("=")[0]):
            translate([flag], RECIPE)
    assert run(["flags", "--moe-router-topk"]) == 0
    assert "--moe-*" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("flags", "translated"),
    [
        ("--training.num_tokens_per_microbatch_per_dp_rank 256", "--batch.micro 2 --batch.global None"),
        (
            "--training.max_context_length 64 --training.num_tokens_per_train_step 256",
            "--data.sequence-length 64 --batch.global 4 --batch.micro None",
        ),
        ("--training.num_tokens_per_train_step -1", "--batch.global None"),
        ("--validator.steps -1 --dump_folder runs/a", "--evaluate.batches None --run-dir runs/a"),
        ("--null-tokenizer-eod-id 3", "--data.eod 3"),
    ],
)
def test_batches_in_tokens_and_other_words_of_today(flags: str, translated: str) -> None:
    assert translate(flags.split(), RECIPE)[0] == translated.split()


def test_tokens_that_are_no_whole_samples_are_refused() -> None:
    with pytest.raises(UserError, match="samples have 128 tokens"):
        translate(["--training.num_tokens_per_train_step", "250"], RECIPE)
