"""Completion: asked of a real shell, where there is one."""

from __future__ import annotations

import shlex
import shutil
import subprocess
from pathlib import Path

import pytest

from paddock.cli.completion import all_commands, bash, fish, zsh
from paddock.cli.main import VERBS, run

COMMANDS = {command.name: command for command in all_commands()}


@pytest.fixture(scope="module")
def script(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("completion") / "paddock.bash"
    path.write_text(bash(COMMANDS))
    return path


def completed(script: Path, line: str, folder: Path) -> list[str]:
    """What bash offers for the last word of a line."""
    words = [*line.split(" ")]
    ask = f"source {script}; COMP_WORDS=({' '.join(map(shlex.quote, words))}); COMP_CWORD={len(words) - 1}; _paddock; "
    ask += 'printf "%s\\n" "${COMPREPLY[@]}"'
    done = subprocess.run(["bash", "-c", ask], cwd=folder, capture_output=True, text=True, check=True)
    assert done.stderr == ""
    return done.stdout.split()


@pytest.mark.skipif(shutil.which("bash") is None, reason="needs bash")
@pytest.mark.parametrize(
    ("line", "offered"),
    [
        ("paddock tra", {"train"}),
        ("paddock ", set(VERBS)),
        ("paddock check p", {"parity"}),
        ("paddock recipe ", {"show", "copy"}),
        ("paddock recipe show gpt2/ti", {"gpt2/tiny"}),
        ("paddock help zo", {"zoo"}),
        ("paddock train gpt2/ti", {"gpt2/tiny"}),
        ("paddock train gpt2/tiny --optimizer.l", {"--optimizer.lr"}),
        ("paddock train gpt2/tiny --tensor-mod", {"--tensor-model-parallel-size"}),
        ("paddock train gpt2/tiny --nproc-per", {"--nproc-per-node"}),
        ("paddock train gpt2/tiny --optimizer.name ada", {"adam", "adamw", "adafactor"}),
        ("paddock train resnet/18 --model.ar", {"--model.arch"}),
        ("paddock check parity gpt2/tiny --lay", {"--layouts"}),
        ("paddock convert x y --to ", {"huggingface", "paddock"}),
        ("paddock completion ", {"bash", "zsh", "fish"}),
        ("paddock evaluate runs/t", {"runs/tour", "runs/trial"}),
        ("paddock preprocess --vocab-f", {"--vocab-file"}),
    ],
)
def test_bash_offers(script: Path, tmp_path: Path, line: str, offered: set[str]) -> None:
    for name in ("tour", "trial", "other"):
        (tmp_path / "runs" / name).mkdir(parents=True)
        (tmp_path / "runs" / name / "config.yaml").touch()
    assert offered <= set(found := completed(script, line, tmp_path))
    last = line.rpartition(" ")[2]
    assert all(word.startswith(last) for word in found)


def test_all_verbs_are_there_with_their_flags() -> None:
    assert set(VERBS) <= {name.split()[0] for name in COMMANDS}
    for verb in ("train", "resume", "evaluate", "check parity", "align record"):
        assert "--optimizer.lr" in COMMANDS[verb].flags and "--data.sequence-length" in COMMANDS[verb].flags, verb
    assert "--junit" in COMMANDS["zoo check"].flags and "--older-than" in COMMANDS["cache clean"].flags


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_the_script_is_what_its_shell_can_read(shell: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert run(["completion", shell]) == 0
    text = capsys.readouterr().out
    assert text == {"bash": bash, "zsh": zsh, "fish": fish}[shell](COMMANDS)
    assert "gpt2/tiny" in text and "optimizer.lr" in text and "tensor-model-parallel-size" in text
    if shutil.which(shell):
        (tmp_path / "script").write_text(text)
        assert subprocess.run([shell, "-n", str(tmp_path / "script")], capture_output=True).stderr == b""
