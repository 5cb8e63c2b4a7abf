"""How long a user waits for a help page, beside what Python itself and its libraries take to start.

Every command runs in a fresh process, in rounds, so that noise is shared; the median counts. Run:
python benchmarks/startup.py [--rounds 9]
"""

from __future__ import annotations

import argparse
import statistics
import subprocess
import sys
import time
from pathlib import Path

from report import Row, keep

PADDOCK = str(Path(sys.executable).with_name("paddock"))
COMMANDS = {
    "python": [sys.executable, "-c", "pass"],
    "import pydantic, tyro, yaml": [sys.executable, "-c", "import pydantic, tyro, yaml"],
    "paddock --help": [PADDOCK, "--help"],
    "paddock train --help": [PADDOCK, "train", "--help"],
    "paddock train gpt2/tiny --dry-run": [PADDOCK, "train", "gpt2/tiny", "--dry-run"],
    "import torch": [sys.executable, "-c", "import torch"],
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=9)
    rounds = parser.parse_args().rounds
    times: dict[str, list[float]] = {name: [] for name in COMMANDS}
    for _ in range(rounds):
        for name, command in COMMANDS.items():
            started = time.perf_counter()
            subprocess.run(command, check=True, stdout=subprocess.DEVNULL)
            times[name].append(time.perf_counter() - started)
    rows: list[Row] = []
    for name, values in times.items():
        goal = "< 0.5" if name.endswith("--help") else ""
        rows += [(f"{name}, median s", statistics.median(values), goal), (f"{name}, fastest s", min(values), "")]
    keep(__file__, rows)


if __name__ == "__main__":
    main()
