"""What is kept of the command line: everything but secrets."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from paddock.cli.main import run
from paddock.testing.tiny import TINY
from paddock.versions import HIDDEN, redacted


@pytest.mark.parametrize(
    ("given", "kept"),
    [
        ("--token=abc", f"--token={HIDDEN}"),
        ("--token abc", f"--token {HIDDEN}"),
        ("--hub.api_key abc --train.steps 5", f"--hub.api_key {HIDDEN} --train.steps 5"),
        ("--log.wandb-api-key=abc", f"--log.wandb-api-key={HIDDEN}"),
        ("--db_password p=w", f"--db_password {HIDDEN}"),
        ("--my-secret abc", f"--my-secret {HIDDEN}"),
        ("AWS_SECRET_ACCESS_KEY=abc", f"AWS_SECRET_ACCESS_KEY={HIDDEN}"),
        ("HF_TOKEN=abc", f"HF_TOKEN={HIDDEN}"),
        ("--token --train.steps 5", "--token --train.steps 5"),
        ("--data.path https://me:hunter2@example.org/x", f"--data.path https://{HIDDEN}@example.org/x"),
        ("--note hf_abcdefghijklmnopqrstuvwx", f"--note {HIDDEN}"),
        ("--note=AKIAABCDEFGHIJKLMNOP", f"--note={HIDDEN}"),
        ("--wandb_key abc --steps 5", f"--wandb_key {HIDDEN} --steps 5"),
        ("--bearer abc", f"--bearer {HIDDEN}"),
        ("--note xoxb-123456789012-abcdefgh", f"--note {HIDDEN}"),
        (
            "--path https://b/x?X-Amz-Credential=me&part=3&X-Amz-Signature=abc&token=t",
            f"--path https://b/x?X-Amz-Credential={HIDDEN}&part=3&X-Amz-Signature={HIDDEN}&token={HIDDEN}",
        ),
        (
            "--path=https://b/x?sv=1&sig=a%2Bb&AWSAccessKeyId=AB",
            f"--path=https://b/x?sv=1&sig={HIDDEN}&AWSAccessKeyId={HIDDEN}",
        ),
    ],
)
def test_secrets_are_not_kept(given: str, kept: str) -> None:
    assert " ".join(redacted(given.split())) == kept


def test_a_header_is_not_kept() -> None:
    assert redacted(["--header", "Authorization: Bearer abcdef12"]) == ["--header", f"Authorization: Bearer {HIDDEN}"]


@pytest.mark.parametrize(
    "command",
    [
        "--tokenizer.vocab vocab.json --tokenizer.merges=merges.txt",
        "--mask-token [MASK] --tokenizer.eos_token=</s>",
        "--data.max_tokens 5 --tokens 7 --num-key-value-heads 4 --json-keys text --max-new-tokens 60",
        "--data.path https://example.org/a@b --train.seed 1",
        "--path https://example.org/x?part=3&design=big --sort-key loss --json-keys text",
    ],
)
def test_what_is_no_secret_is_kept(command: str) -> None:
    assert " ".join(redacted(command.split())) == command


def test_a_run_keeps_its_command_without_secrets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "argv", ["paddock", "train", "--password", "hunter2", "--log.note=hf_" + "a" * 30])
    assert run(["train", *TINY, "--train.steps", "1", "--run-dir", str(tmp_path / "run")]) == 0
    kept = json.loads((tmp_path / "run" / "environment.json").read_text())["command"]
    assert kept == ["paddock", "train", "--password", HIDDEN, f"--log.note={HIDDEN}"]
