"""The picture of the promise: the losses of one process, dp2, tp2 and pp2, lying on each other.

    python benchmarks/same_loss.py [STEPS] [OUTPUT]

trains four times (about two minutes on two cores) and writes docs/pictures/same-loss.svg, which is light or dark as
whoever looks at it wishes.
"""

from __future__ import annotations

import subprocess
import sys
import tempfile
from pathlib import Path

OUTPUT = Path(__file__).parents[1] / "docs" / "pictures" / "same-loss.svg"
LAYOUTS = {
    "one process": [],
    "dp2": ["--nproc-per-node", "2"],
    "tp2": ["--nproc-per-node", "2", "--parallel.tensor", "2"],
    "pp2": ["--nproc-per-node", "2", "--parallel.pipeline", "2"],
}


def main(steps: str = "60", output: str = str(OUTPUT)) -> None:
    with tempfile.TemporaryDirectory() as folder:
        runs = [str(Path(folder) / name) for name in LAYOUTS]
        for run, layout in zip(runs, LAYOUTS.values(), strict=True):
            same = ["--steps", steps, "--model.dropout", "0", "--batch.micro", "4", "--evaluate.every", "None"]
            paddock("train", "gpt2/tiny", *same, "--log.every", "1", *layout, "--run-dir", run)
        paddock("report", *runs, "--metric", "train.loss", "--output", output)


def paddock(*arguments: str) -> None:
    subprocess.run([sys.executable, "-m", "paddock", *arguments], check=True)


if __name__ == "__main__":
    main(*sys.argv[1:])
