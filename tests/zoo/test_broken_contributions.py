"""Each way to break a contribution is refused, by the check that should and with the reason; the good one passes.

Every contribution here is the good one with one change.
"""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest

from paddock.zoo.check import CheckPlan, check_contribution
from paddock.zoo.findings import Report

Mutation = Callable[[Path], object]


def check(folder: Path) -> Report:
    """What its files say; no index is asked."""
    return check_contribution(CheckPlan(folder, run=None, index="file:///"))


def remove(name: str) -> Mutation:
    return lambda folder: (folder / name).unlink()


def write(name: str, text: str) -> Mutation:
    return lambda folder: (folder / name).write_text(text, encoding="utf-8")


def add(name: str, text: str) -> Mutation:
    def change(folder: Path) -> None:
        with open(folder / name, "a", encoding="utf-8") as stream:
            stream.write(text)

    return change


def replace(name: str, old: str, new: str) -> Mutation:
    def change(folder: Path) -> None:
        text = (folder / name).read_text(encoding="utf-8")
        assert old in text, f"{name} does not say {old!r}"
        (folder / name).write_text(text.replace(old, new), encoding="utf-8")

    return change


def rename(name: str, new: str) -> Mutation:
    return lambda folder: (folder / name).rename(folder / new)


def link(name: str, target: str) -> Mutation:
    def change(folder: Path) -> None:
        (folder / name).unlink(missing_ok=True)
        (folder / name).symlink_to(target)

    return change


def large(name: str, size: int) -> Mutation:
    def change(folder: Path) -> None:
        with open(folder / name, "wb") as stream:
            stream.truncate(size)

    return change


RUN, ARGUMENT, PAGE = "run_scripts/run_small.py", "run_scripts/argument.py", "run_scripts/README.md"
SECRET = "hf_" + "Ab1" * 10
BROKEN: dict[str, tuple[Mutation, str, str]] = {
    # structure
    "no requirements": (remove("requirements.txt"), "structure", "requirements.txt is missing"),
    "no README": (remove("README.md"), "structure", "README.md is missing"),
    "no script": (remove(RUN), "structure", "run_scripts/run_NAME.py is missing"),
    "no arguments": (remove(ARGUMENT), "structure", "run_scripts/argument.py is missing"),
    "no formate_cmd": (
        rename("run_scripts/formate_cmd.py", "run_scripts/format_cmd.py"),
        "structure",
        "formate_cmd.py is",
    ),
    "no page of parameters": (rename(PAGE, "run_scripts/REAMDE.md"), "structure", "run_scripts/README.md is missing"),
    "no model.yaml": (remove("model.yaml"), "structure", "model.yaml is missing"),
    "an empty file": (write(PAGE, "\n"), "structure", "the file is empty"),
    "Python that is none": (add(RUN, "\ndef :"), "structure", "it is not valid Python"),
    "a link that leads out": (link("notes.txt", "/etc/hosts"), "structure", "a symbolic link leads out"),
    "a link to itself": (link("loop", "loop"), "structure", "a symbolic link leads out"),
    "a pipe": (lambda folder: os.mkfifo(folder / "pipe"), "structure", "neither a file nor a folder"),
    "weights inside": (large("weights.bin", 9 * 2**20), "structure", "the file has 9.4 MB"),
    # README
    "no section on the model": (
        replace("README.md", "1. Model introduction", "1. Words"),
        "readme",
        "model introduction",
    ),
    "no section on data": (
        replace("README.md", "2. Dataset preparation", "2. Words"),
        "readme",
        "no section on dataset",
    ),
    "no section on Docker": (
        replace("README.md", "3. Docker environment", "3. Words"),
        "readme",
        "no section on Docker",
    ),
    "no section on training": (replace("README.md", "4. How to start training", "4. Words"), "readme", "how to start"),
    "no section on results": (
        replace("README.md", "5. Training results", "5. Words"),
        "readme",
        "no section on training",
    ),
    "an empty section": (
        replace("README.md", "## 2. Dataset preparation\n", "## 2. Dataset preparation\n## Words\n"),
        "readme",
        "the section on dataset preparation is empty",
    ),
    "results without a table": (replace("README.md", "|", " "), "readme", "the training results are no table"),
    "results without a number": (replace("README.md", "97.4", "good"), "readme", "no number in its last column"),
    "results that are not there yet": (replace("README.md", "97.4", "TODO"), "readme", "it still says TODO"),
    "a command for another script": (replace("README.md", "run_small.py", "run_big.py"), "readme", "names run_big.py"),
    # parameters
    "a parameter missing": (replace(ARGUMENT, '"--lr"', '"--rate"'), "parameters", "--lr is not defined"),
    "step missing": (replace(ARGUMENT, '"--step"', '"--max_step"'), "parameters", "--step is not defined"),
    "a parameter not explained": (
        replace(PAGE, "| autocast |", "| amp |"),
        "parameters",
        "--autocast is not explained",
    ),
    "DDP without its parameter": (
        lambda folder: (
            replace("model.yaml", "nproc_per_node: 1", "nproc_per_node: 2")(folder),
            replace(ARGUMENT, '"--nproc_per_node"', '"--processes"')(folder),
        ),
        "parameters",
        "--nproc_per_node is not defined",
    ),
    "a case with a flag that no script has": (
        replace("model.yaml", "    nnode: 1\n", "    nnode: 1\n    others: {warm_up: 3}\n"),
        "parameters",
        "small passes --warm_up, which argument.py does not define",
    ),
    # requirements
    "a requirement that is none": (add("requirements.txt", "numpy=>1\n"), "requirements", "it is no requirement"),
    "a requirement without a version": (add("requirements.txt", "numpy\n"), "requirements", "numpy is not pinned"),
    "a requirement without an end": (add("requirements.txt", "numpy>=1.20\n"), "requirements", "numpy is not pinned"),
    "a requirement twice": (add("requirements.txt", "Paddock==1\n"), "requirements", "paddock is required twice"),
    "another index": (add("requirements.txt", "--index-url http://x\n"), "requirements", "--index-url is an option"),
    "a repository without a commit": (
        add("requirements.txt", "git+https://gitee.com/xiwei777/tcap_dllogger.git\n"),
        "requirements",
        "a repository is named without its package and commit",
    ),
    "a branch of a repository": (
        add("requirements.txt", "logger @ git+https://example.org/logger.git@main\n"),
        "requirements",
        "logger is not pinned",
    ),
    "a wheel of this machine": (add("requirements.txt", "./torch.whl\n"), "requirements", "a file of one machine"),
    # hygiene
    "an absolute path": (add(RUN, '\nDATA = "/data/imagenet/train"\n'), "hygiene", "an absolute path: /data/imagenet"),
    "somebody's home": (add("run.sh", "cp ~/weights.bin .\n"), "hygiene", "an absolute path: ~/weights.bin"),
    "a path in a command": (add(RUN, '\nC = f"cp /home/me/x {RUN}"\n'), "hygiene", "an absolute path: /home/me"),
    "a breakpoint": (add(RUN, "\nbreakpoint()\n"), "hygiene", "a debugger is called: breakpoint()"),
    "a debugger": (add(RUN, "\nimport pdb; pdb.set_trace()\n"), "hygiene", "a debugger is imported: pdb"),
    "another debugger": (add(RUN, "\nfrom IPython import embed\n"), "hygiene", "imported: IPython.embed"),
    "a token": (add(RUN, f'\nLOGIN = "{SECRET}"\n'), "hygiene", "a secret: a token of a well-known form"),
    "a password": (
        add("settings.yaml", 'db_password: "correcthorse"\n'),
        "hygiene",
        "a secret: a value of db_password",
    ),
    "a key": (add("id.txt", "-----BEGIN RSA PRIVATE KEY-----\n"), "hygiene", "a secret: a private key"),
    "a failure unnoticed": (
        add(RUN, '\nimport os\nos.system("train")\n'),
        "hygiene",
        "exit status of os.system is thrown",
    ),
    # model.yaml
    "no cases": (write("model.yaml", "[]\n"), "model.yaml", "model.yaml is no list of cases"),
    "YAML that is none": (write("model.yaml", "- {a: [\n"), "model.yaml", "is not valid YAML"),
    "an unknown key": (
        replace("model.yaml", "batch_size:", "batchsize:"),
        "model.yaml",
        "unknown key params.batchsize",
    ),
    "a dataset of one machine": (
        replace("model.yaml", 'dataset_path: ""', "dataset_path: /imagenet"),
        "model.yaml",
        "params.dataset_path = /imagenet: it is a path of one machine",
    ),
    "an unknown section": (add("model.yaml", "  gpu: 4\n"), "model.yaml", 'there is no "gpu" here'),
    "a number that is none": (replace("model.yaml", "step: 10", "step: ten"), "model.yaml", "params.step = ten"),
    "YAML that would run code": (
        write("model.yaml", "- !!python/object/apply:os.system ['true']\n"),
        "model.yaml",
        "is not valid YAML",
    ),
    "two cases of one name": (
        lambda folder: add("model.yaml", (folder / "model.yaml").read_text())(folder),
        "model.yaml",
        "case_name = small: two cases have it",
    ),
    "a script outside": (
        replace("model.yaml", "run_file: run_scripts/run_small.py", "run_file: ../run_small.py"),
        "case small",
        "it leads out of its folder by ..",
    ),
    "a script elsewhere": (
        replace("model.yaml", "run_file: run_scripts/run_small.py", "run_file: /bin/true"),
        "case small",
        "it is an absolute path",
    ),
    "a script behind a link": (link(RUN, "/bin/true"), "case small", "it leads out of its folder by a symbolic link"),
    "a script that is not there": (
        replace("model.yaml", "run_file: run_scripts/run_small.py", "run_file: run_scripts/run_tiny.py"),
        "case small",
        "there is no such file",
    ),
    "a folder outside": (replace("model.yaml", "run_dir: .", "run_dir: .."), "case small", "out of its folder by .."),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contribution_is_refused_for_its_reason(name: str, contribution: Path) -> None:
    mutate, wanted, reason = BROKEN[name]
    mutate(contribution)
    report = check(contribution)
    assert not report.passed
    assert any(finding.check == wanted and reason in str(finding) for finding in report.failures), [
        f"{finding.check}: {finding}" for finding in report.failures
    ]


def test_there_are_enough_of_them() -> None:
    assert len(BROKEN) >= 30


def test_the_good_one_passes(contribution: Path) -> None:
    report = check(contribution)
    assert report.passed, report.failures
    assert [finding.check for finding in report.unchecked] == ["case small"]


def test_what_a_run_left_is_no_part_of_it(contribution: Path) -> None:
    for folder in ("runs/small-1", "run_scripts/__pycache__"):
        (contribution / folder).mkdir(parents=True)
        large(f"{folder}/weights.bin", 2**30)(contribution)
    assert check(contribution).passed


@pytest.mark.parametrize(
    "readme",
    [
        "## 1. 模型介绍\n残差网络。\n## 2. 数据集准备\n公开数据集。\n## 3. 构建Docker环境\n拉取镜像。\n## 4. 启动训练\n"
        "python run_scripts/run_small.py\n## 5. 训练结果\n| 参数 | 精度 |\n|---|---|\n| 4 | 77.3 |\n",
        "# Model\nA model.\n## Data\nPublished.\n## Environment\nDocker.\n## Training\n### Start\nrun_small.py\n"
        "## Results\n| a | b |\n| --- | --- |\n| x | 1.5 |\n",
    ],
)
def test_headings_in_english_and_chinese(readme: str, contribution: Path) -> None:
    (contribution / "README.md").write_text(readme, encoding="utf-8")
    assert check(contribution).passed


@pytest.mark.parametrize(
    "line",
    [
        'A = "/dev/null"',
        'A = "https://example.org/data/x"',
        '"""Reads /data/imagenet, or what --dataset_path says."""',
        'A = "a/b/c"',
        "def embed(x): pass\nembed(1)",
        "A = 6 / 3 / 2",
        'token = "<|endoftext|>"',
        'password = "<yours>"',
        "import os\nassert os.system('true') == 0",
        "import subprocess\nsubprocess.run(['true'], check=True)",
    ],
)
def test_what_looks_bad_and_is_not(line: str, contribution: Path) -> None:
    add(RUN, f"\n{line}\n")(contribution)
    report = check(contribution)
    assert report.passed, report.failures
