"""Each way to break a contribution is refused, by the check that should and with the reason; the good one passes.

Every contribution here is the good one with one change.
"""

from __future__ import annotations

import json
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


def notebook(code: str) -> Mutation:
    """One with words about a path, and a cell that is run."""
    words = {"cell_type": "markdown", "source": "Put the data into /home/me/data."}
    cell = {"cell_type": "code", "source": code.splitlines(keepends=True), "outputs": []}
    return write("explore.ipynb", json.dumps({"cells": [words, cell], "nbformat": 4}))


RUN, ARGUMENT, PAGE = "run_scripts/run_small.py", "run_scripts/argument.py", "run_scripts/README.md"
SECRET = "hf_" + "Ab1" * 10
KEY = "-----BEGIN OPENSSH PRIVATE KEY-----\nb3BlbnNzaC1rZXktdjEA\n"
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
    "a path of one word": (add(RUN, '\nDATA = "/imagenet"\n'), "hygiene", "an absolute path: /imagenet"),
    "a path that is joined": (add(RUN, '\nimport os\nD = os.path.join("/data", "x")\n'), "hygiene", "path: /data"),
    "a path by default": (add(RUN, '\ndef load(root="/imagenet"): ...\n'), "hygiene", "path: /imagenet"),
    "a path that begins": (add(RUN, '\nD = f"/imagenet/{RUN}"\n'), "hygiene", "an absolute path: /imagenet/"),
    "a path in a script": (
        add("run.sh", "export DATA=/imagenet\n"),
        "hygiene",
        "run.sh:1: an absolute path: /imagenet",
    ),
    "a path behind a flag": (add("run.sh", "python x.py --data /imagenet\n"), "hygiene", "path: /imagenet"),
    "a path in settings": (add("settings.yaml", "root: /imagenet\n"), "hygiene", "an absolute path: /imagenet"),
    "a path in a Dockerfile": (
        write("Dockerfile", "FROM python\nCOPY --chown=me \\\n  /home/me/x /x\n"),
        "hygiene",
        "Dockerfile:2: an absolute path: /home/me/x",
    ),
    "a path in a notebook": (
        notebook("%matplotlib inline\nDATA = '/home/me/data'\n"),
        "hygiene",
        "explore.ipynb, cell 2:2: an absolute path: /home/me/data",
    ),
    "a path in a notebook's command": (
        notebook("!cp /home/me/x .\n"),
        "hygiene",
        "cell 2:1: an absolute path: /home/me",
    ),
    "a path in a notebook's shell": (notebook("%%bash\ncp /home/me/x .\n"), "hygiene", "cell 2:2: an absolute path"),
    "a breakpoint": (add(RUN, "\nbreakpoint()\n"), "hygiene", "a debugger is called: breakpoint()"),
    "a debugger": (add(RUN, "\nimport pdb; pdb.set_trace()\n"), "hygiene", "a debugger is imported: pdb"),
    "another debugger": (add(RUN, "\nfrom IPython import embed\n"), "hygiene", "imported: IPython.embed"),
    "a console": (add(RUN, "\nimport code\ncode.interact()\n"), "hygiene", "a debugger is called: code.interact()"),
    "a debugger by its name": (add(RUN, '\n__import__("pdb")\n'), "hygiene", "a debugger is imported: pdb"),
    "a debugger in a script": (add("run.sh", "python -m pdb x.py\n"), "hygiene", "a debugger is started: -m pdb"),
    "a debugger around": (add("run.sh", "A=1; gdb --args python x.py\n"), "hygiene", "a debugger is started: ; gdb"),
    "a debugger in a command": (add(RUN, '\nC = ["python", "-m", "ipdb", RUN]\n'), "hygiene", "started: -m ipdb"),
    "a debugger in a text": (add(RUN, '\nC = "python -m pdb " + RUN\n'), "hygiene", "started: -m pdb"),
    "a debugger in a notebook": (notebook("import pdb\n"), "hygiene", "cell 2:1: a debugger is imported: pdb"),
    "a token": (add(RUN, f'\nLOGIN = "{SECRET}"\n'), "hygiene", "a secret: a token of a well-known form"),
    "a password": (
        add("settings.yaml", 'db_password: "correcthorse"\n'),
        "hygiene",
        "a secret: a value of db_password",
    ),
    "a key": (add("id.txt", "-----BEGIN RSA PRIVATE KEY-----\n"), "hygiene", "a secret: a private key"),
    "a token in .env": (
        write(".env", f"LOGIN={SECRET}\n"),
        "hygiene",
        ".env:1: a secret: a token of a well-known form",
    ),
    "a key in a file of its own": (write("id_rsa", KEY), "hygiene", "id_rsa:1: a secret: a private key"),
    "a key in a certificate": (write("key.pem", KEY), "hygiene", "key.pem:1: a secret: a private key"),
    "a token in a Dockerfile": (write("Dockerfile", f"ENV X={SECRET}\n"), "hygiene", "Dockerfile:1: a secret: a token"),
    "a password in a Dockerfile": (
        write("Dockerfile", "ENV DB_PASSWORD=correcthorse\n"),
        "hygiene",
        "Dockerfile:1: a secret: a value of DB_PASSWORD",
    ),
    "a token in a notebook": (notebook(f"login('{SECRET}')"), "hygiene", "a secret: a token of a well-known form"),
    "a password in a notebook": (notebook('password = "correcthorse"'), "hygiene", "a secret: a value of password"),
    "a token among bytes": (
        lambda folder: (folder / "state.bin").write_bytes(b"\0\1\xff" + SECRET.encode() + b"\0"),
        "hygiene",
        "state.bin: a secret: a token of a well-known form",
    ),
    "a token of another editor": (
        lambda folder: (folder / "login.txt").write_bytes(f"login {SECRET}".encode("utf-16")),
        "hygiene",
        "login.txt:1: a secret: a token of a well-known form",
    ),
    "a variable of a script": (
        add("run.sh", "export AWS_SECRET_ACCESS_KEY=wJalrXUtnFEMI\n"),
        "hygiene",
        "run.sh:1: a secret: a value of AWS_SECRET_ACCESS_KEY",
    ),
    "a flag of a script": (add("run.sh", "x --password=correcthorse\n"), "hygiene", "a secret: a value of password"),
    "a password without quotes": (
        add("settings.yaml", "db_password: correcthorse\n"),
        "hygiene",
        "settings.yaml:1: a secret: a value of db_password",
    ),
    "a password in a list": (add("x.yml", "- DB_PASSWORD=correcthorse\n"), "hygiene", "a value of DB_PASSWORD"),
    "a password in an ini file": (add("x.ini", "password = correcthorse\n"), "hygiene", "a value of password"),
    "a password that was taken out badly": (add("x.yml", "# password: correcthorse\n"), "hygiene", "of password"),
    "a password in an address": (
        add(RUN, '\nD = "postgres://me:hunter2@db/x"\n'),
        "hygiene",
        "a password in an address",
    ),
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


ALSO_BLAMED = {
    "no requirements": {"requirements"},
    "no README": {"readme"},
    "no script": {"readme", "case small"},
    "no model.yaml": {"model.yaml"},
    "no arguments": {"parameters"},
    "no page of parameters": {"parameters"},
    "an empty file": {"parameters"},
    "a dataset of one machine": {"hygiene"},
    "a script behind a link": {"structure", "readme"},
}
"""Checks that the same change breaks besides: what is missing for one is missing for another."""


@pytest.mark.parametrize("name", BROKEN)
def test_a_broken_contribution_is_refused_for_its_reason(name: str, contribution: Path) -> None:
    mutate, wanted, reason = BROKEN[name]
    mutate(contribution)
    report = check(contribution)
    blamed = {finding.check for finding in report.failures}
    assert blamed == {wanted} | ALSO_BLAMED.get(name, set()), report.failures
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
        'A = "/"',
        'A = "/n"',
        'A = "a" + "/train"',
        'B = 1\nA = f"{B}/train/images"',
        'route = "/predict"',
        'class S:\n    @app.get("/v1/completions")\n    def answer(self): ...',
        'A = {"health_url": "/health"}',
        'A = "x".endswith("/train") or "/val" in "x" or "x" == "/v1/models"',
        'import re\nA = re.sub("/train", "", "x")',
        'print("/step")',
        'UNIT = "/step"',
        'A = ["/bin/sh", "-c", "true"]',
        'A = "/usr/bin/env"',
        'A = "/proc/self/status"',
        '"""Do not run it by python -m pdb."""',
        "import codecs, code_of_conduct",
        'A = "a task-specific-pretraining-objective2"',
        'max_token = "1000000"',
        'D = "postgres://me:${PASSWORD}@db/x"',
    ],
)
def test_what_looks_bad_and_is_not(line: str, contribution: Path) -> None:
    add(RUN, f"\n{line}\n")(contribution)
    report = check(contribution)
    assert report.passed, report.failures


FILES_WITHOUT_FAULT = {
    "run.sh": """\
#!/usr/bin/env bash
# python -m pdb run.py shows more
export HF_TOKEN=$1 AWS_SECRET_ACCESS_KEY=${SECRET} DB_PASSWORD=$(cat password.txt)
export PYTHONUNBUFFERED=1 > /dev/null 2>&1
SHELL=/bin/bash
sed -e 's/train/val/' -e /train/d list | curl http://localhost:8000/predict --url=/predict
python run.py --max-token=1000000 --tokenizer=bytes_level --device /dev/null -m pdbx
""",
    "settings.yaml": """\
password: ${PASSWORD}
token: null
secret: ${{ secrets.TOKEN }}
api_key: <yours>
access_key: your_access_key
tls: {password: "", token: ~, key_file: server.key}
password_file: secrets/password
db_password: ./secrets/db_password
tokens: 1000000
max_token: 1000000
token: 1000000
mask_token: "[MASK]"
eos_token: ENDOFTEXT
tokenizer: bytes_level
key: value_of_no_secret
num_key_value_heads: 123456
# the password: whatever you like
prefix: /predict
ratio: 1/2
date: 2026/01/01
""",
    ".env": "HF_TOKEN=\nPASSWORD=${PASSWORD}\nTOKENIZERS_PARALLELISM=false\n",
    "settings.ini": "[login]\npassword =\ntoken = none\npad_token = padding\n",
    "Dockerfile": """\
FROM python:3.11
WORKDIR /workspace/model
ENV PATH=/opt/conda/bin:$PATH TOKEN=${TOKEN}
COPY requirements.txt /workspace/model/
COPY --from=builder /opt/conda /opt/conda
ADD https://example.org/data/x.tar /data/x.tar
RUN --mount=type=secret,id=token pip install -r requirements.txt && mkdir -p /data/train
""",
    "explore.ipynb": json.dumps(
        {
            "cells": [
                {"cell_type": "markdown", "source": ["cp /home/me/data ."]},
                {
                    "cell_type": "code",
                    "source": ["%pip install x\n", "rate = 1 / 2"],
                    "outputs": [{"text": ["/data/x/y"]}],
                },
                {"cell_type": "raw", "source": 3},
                "no cell",
            ]
        }
    ),
    "no_notebook.ipynb": "{[",
    "picture.bin": "\0/home/me/data password: correcthorse",
    "words.md": "Put it into /home/me/data, with `export DB_PASSWORD=correcthorse`, or run `python -m pdb run.py`.",
}


@pytest.mark.parametrize("name", FILES_WITHOUT_FAULT)
def test_files_that_look_bad_and_are_not(name: str, contribution: Path) -> None:
    write(name, FILES_WITHOUT_FAULT[name])(contribution)
    report = check(contribution)
    assert report.passed, report.failures


def test_what_is_too_large_to_be_part_of_it_is_not_read(contribution: Path) -> None:
    """It is refused for that, and takes no memory."""
    large("weights.bin", 2**40)(contribution)
    assert {finding.check for finding in check(contribution).failures} == {"structure"}
