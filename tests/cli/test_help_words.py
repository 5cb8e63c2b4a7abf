"""People find a setting by the word that they know: `paddock train --help | grep -i zero`.

A pipe is 80 columns wide and grep sees one line, so what is looked for must stand on a line of its setting's help.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

WORDS = {
    "--parallel.data": ["data parallel"],
    "--parallel.tensor": ["tensor parallel", "model parallel"],
    "--parallel.pipeline": ["pipeline parallel", "model parallel"],
    "--parallel.schedule": ["pipeline schedule", "GPipe", "1F1B", "interleaved", "virtual stages"],
    "--parallel.shard": ["ZeRO", "ZeRO-1/2", "ZeRO-3", "FSDP"],
    "--parallel.sequence": ["sequence parallel"],
    "--parallel.recompute": ["activation checkpointing", "gradient checkpointing"],
    "--batch.micro": ["micro-batch size"],
    "--batch.global": ["global batch size"],
    "--batch.accumulation": ["gradient accumulation"],
    "--optimizer.clip": ["gradient clipping"],
    "--precision.compute": ["mixed precision", "AMP", "autocast"],
    "--precision.loss-scale": ["loss scaling"],
    "--train.compile": ["torch.compile"],
    "--train.ema": ["EMA", "exponential moving average"],
    "--checkpoint.asynchronous": ["asynchronous checkpointing"],
    "--log.measure-peak": ["MFU"],
}


@pytest.fixture(scope="module")
def page() -> list[str]:
    """What `paddock train --help` writes into a pipe, without its frames."""
    environment = {**os.environ, "COLUMNS": "80", "NO_COLOR": "1"}
    command = [sys.executable, "-m", "paddock", "train", "--help"]
    written = subprocess.run(command, env=environment, capture_output=True, text=True, check=True).stdout
    return [line.strip("│╭╰╮╯─ ") for line in written.splitlines()]


@pytest.mark.parametrize("flag", WORDS)
def test_the_words_of_the_field_find_a_setting(flag: str, page: list[str]) -> None:
    [begin] = [number for number, line in enumerate(page) if line.split(" ")[0].rstrip(",") == flag]
    ends = (number for number, line in enumerate(page) if number > begin and line.startswith("--"))
    lines = page[begin + 1 : next(ends)]
    for word in WORDS[flag]:
        assert any(word.casefold() in line.casefold() for line in lines), f"{flag} does not say {word}: {lines}"
