"""Run the tests as another machine would: without this processor's newer instructions, and beside busy processes.

    python tests/elsewhere.py [arguments of pytest]

What passes only here (a threshold that one processor's rounding happens to meet, an assertion about seconds) fails.
`make test-elsewhere` runs the whole suite like this.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys

PLAIN_PROCESSOR = {
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "AVX2",
    "MKL_ENABLE_INSTRUCTIONS": "AVX2",
}
NUM_BUSY = 2
BUSY = """
import os, signal, sys
signal.signal(signal.SIGINT, signal.SIG_IGN)  # Ctrl-C means the tests
while os.getppid() == int(sys.argv[1]):
    pass
"""
"""Ends with the process that started it, however that one ends."""


def main(arguments: list[str]) -> int:
    """The exit code of pytest."""
    busy = [subprocess.Popen([sys.executable, "-c", BUSY, str(os.getpid())]) for _ in range(NUM_BUSY)]
    try:
        tests = subprocess.Popen([sys.executable, "-m", "pytest", *arguments], env=os.environ | PLAIN_PROCESSOR)
        signal.signal(signal.SIGINT, lambda *_: None)  # a terminal sends it to pytest too, which then ends
        signal.signal(signal.SIGTERM, lambda *_: tests.terminate())
        return tests.wait()
    finally:
        for process in busy:
            process.kill()
            process.wait()


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
