"""A good contribution, as `paddock zoo new` makes it and its author finishes it; and one that runs without torch."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest

from paddock.testing.samples.contributions import SMALL_RECIPE, finished
from paddock.zoo.scaffold import new_contribution

QUICK_SCRIPT = """\
import json
from argument import parse_arguments
arguments = parse_arguments(["quick"])
with open("log.jsonl", "w") as log:
    log.write(json.dumps({"type": "LOG", "step": "PARAMETER", "data": {"device": f"{arguments.device}:0"}}) + "\\n")
    for step in range(1, arguments.step + 1):
        data = {"train.loss": 4.0 / step, "train.ips": 10.0}
        log.write(json.dumps({"type": "LOG", "step": [0, step], "data": data}) + "\\n")
    data = {"val.perplexity": 3.0}
    log.write(json.dumps({"type": "LOG", "step": [0, arguments.step], "data": data}) + "\\n")
"""


@pytest.fixture(scope="session")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A finished contribution that trains a very small model. Read it, do not change it."""
    place = tmp_path_factory.mktemp("made")
    (place / "small.yaml").write_text(SMALL_RECIPE)
    folder = finished(new_contribution("small", str(place / "small.yaml"), place / "small"))
    model = folder / "model.yaml"
    model.write_text(model.read_text().replace("loss_falls: false", "loss_falls: true"))
    return folder


@pytest.fixture
def contribution(made: Path, tmp_path: Path) -> Path:
    """A copy of it, to be broken."""
    return Path(shutil.copytree(made, tmp_path / "contribution"))


@pytest.fixture
def quick(contribution: Path) -> Path:
    """One that writes its log without training anything."""
    script = contribution / "run_scripts" / "run_small.py"
    script.write_text(QUICK_SCRIPT)
    argument = contribution / "run_scripts" / "argument.py"
    argument.write_text(argument.read_text().replace("choices=list(models), ", ""))
    return contribution
