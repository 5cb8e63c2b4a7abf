"""The command that runs a container, as docker's and podman's manuals want it; and that it is run."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from paddock.cli.main import VERBS
from paddock.errors import ConfigError, DataError, MachineError
from paddock.launch.starters.command import parse_command
from paddock.launch.starters.container import ContainerOptions, container_command

WORDS = "train", "gpt2/tiny", "--nproc-per-node", "2"


def command(*words: str, **options: object) -> list[str]:
    settings = {"image": "img:1", "engine": "docker", "print": True} | options
    return container_command(ContainerOptions(**settings), parse_command(words or WORDS, VERBS, "container"))  # type: ignore[arg-type]


def values(words: list[str], flag: str) -> list[str]:
    return [following for word, following in zip(words, words[1:], strict=False) if word == flag]


def test_what_every_container_has() -> None:
    words = command(mount=("/data", "/home/me/x:/x:ro"), shared_memory="8g", option=("--cap-add=SYS_PTRACE",))
    assert words[:4] == ["docker", "run", "--rm", "--init"]
    assert values(words, "--network") == ["host"] and values(words, "--shm-size") == ["8g"]
    assert values(words, "--user") == [f"{os.getuid()}:{os.getgid()}"]
    assert values(words, "--volume") == ["/data:/data", "/home/me/x:/x:ro"]
    assert values(words, "--device") == [] and "--gpus" not in words
    assert words[words.index("img:1") :] == ["img:1", "paddock", *WORDS]
    assert words[words.index("img:1") - 1] == "--cap-add=SYS_PTRACE"
    assert "--privileged" not in words


DEVICES = {
    "npu": ["/dev/davinci0", "/dev/davinci1", "/dev/davinci_manager", "/dev/devmm_svm", "/dev/hisi_hdc"],
    "mlu": ["/dev/cambricon_dev0", "/dev/cambricon_dev1", "/dev/cambricon_ctl"],
    "sdaa": ["/dev/tcaicard0", "/dev/tcaicard1"],
    "xpu": ["/dev/dri"],
    "cpu": [],
}


@pytest.mark.parametrize("device", DEVICES)
def test_the_devices_that_each_accelerator_needs(device: str) -> None:
    for words in (
        command(device=device),
        command(*WORDS, "--device", device),
        command(*WORDS, f"--train.device={device}"),
    ):
        assert values(words, "--device")[: len(DEVICES[device])] == DEVICES[device]
    assert ("/usr/local/Ascend/driver:/usr/local/Ascend/driver:ro" in words) == (device == "npu")


def test_nvidia_has_options_of_its_own() -> None:
    words = command(device="cuda")
    assert values(words, "--gpus") == ["all"] and values(words, "--ulimit") == ["memlock=-1"]
    words = command(device="cuda", engine="podman")
    assert values(words, "--device") == ["nvidia.com/gpu=all"] and "--gpus" not in words
    assert values(words, "--userns") == ["keep-id"] and "--user" not in words


def test_it_works_where_it_was_started_if_that_is_mounted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "sub").mkdir()
    monkeypatch.chdir(tmp_path / "sub")
    assert values(command(mount=(str(tmp_path),)), "--workdir") == [str(tmp_path / "sub")]
    assert values(command(mount=(f"{tmp_path}:/work",)), "--workdir") == ["/work/sub"]
    assert values(command(mount=("/elsewhere",)), "--workdir") == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"mount": ("a:b:c:d",)}, "--mount = a:b:c:d"),
        ({"mount": ("a:relative",)}, "--mount = a:relative"),
        ({"mount": (":/x",)}, "--mount = :/x"),
        ({"shared_memory": "much"}, "--shared-memory = much"),
        ({"device": "gpu"}, "there is no such device"),
    ],
)
def test_refused(options: dict[str, object], message: str) -> None:
    with pytest.raises(ConfigError, match=message):
        command(**options)


def test_what_is_not_there(monkeypatch: pytest.MonkeyPatch) -> None:
    with pytest.raises(DataError, match="there is no /no/such/folder to mount"):
        command(mount=("/no/such/folder",), print=False)
    with pytest.raises(ConfigError, match="--device auto"):
        command(*WORDS, "--device", "auto")
    monkeypatch.setattr("shutil.which", lambda name: None)
    assert command(engine=None)[0] == "docker", "what would run can be seen anywhere"
    with pytest.raises(MachineError, match="neither docker nor podman"):
        command(engine=None, print=False)
    monkeypatch.setattr("shutil.which", lambda name: name if name == "podman" else None)
    assert command(engine=None, print=False)[0] == "podman"


def test_it_becomes_the_engine(tmp_path: Path) -> None:
    """An engine that shows its words, and whose exit code is ours."""
    engine = tmp_path / "docker"
    engine.write_text('#!/bin/sh\nprintf "%s\\n" "$@"\nexit 8\n')
    engine.chmod(0o755)
    environment = os.environ | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    paddock = [sys.executable, "-m", "paddock", "launch", "container", "--image", "img:1", "--mount", str(tmp_path)]
    done = subprocess.run([*paddock, "--", *WORDS], env=environment, capture_output=True, text=True)
    assert done.returncode == 8, done.stderr
    words = done.stdout.splitlines()
    assert words[:2] == ["run", "--rm"] and words[-5:] == ["paddock", *WORDS]
