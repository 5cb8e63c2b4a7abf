"""What can be known of this project's safety without reading it all: `make audit`.

    python tests/audit.py [the pip-audit program]

The pins of constraints.txt against the advisories that PyPI knows of, ruff's security rules over the package, and the
tests that nothing is unpickled and that a job on one machine listens to that machine alone. What could not be checked
is said to be so, and the audit then ends with 3: it has not succeeded.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

PROJECT = Path(__file__).parents[1]
CANARY = "jinja2==2.4.1"
"""A version with known advisories: a source that has nothing against it knows nothing."""
TESTS = ("tests/test_no_pickles.py", "tests/launch/test_open_sockets.py")
PASSED, FAILED, NOT_CHECKED = 0, 1, 3


def main(pip_audit: str = "pip-audit") -> int:
    """The exit code: 0 if all is well, 1 if something was found, 3 if something could not be checked."""
    codes = [check_pins(pip_audit), check_rules(), check_tests()]
    code = FAILED if FAILED in codes else max(codes)
    print({PASSED: "audit: passed", FAILED: "audit: FAILED", NOT_CHECKED: "audit: NOT COMPLETE"}[code])
    return code


def check_pins(pip_audit: str) -> int:
    """Every pin against what is known of it."""
    pins = [line.strip() for line in (PROJECT / "constraints.txt").read_text().splitlines() if "==" in line]
    report = ask(pip_audit, [CANARY, *pins])
    code, lines = judge(report, len(pins))
    print("\n".join(lines), flush=True)
    return code


def ask(pip_audit: str, pins: list[str]) -> dict[str, object] | str:
    """pip-audit's report, or why there is none."""
    with tempfile.NamedTemporaryFile("w", suffix=".txt") as stream:
        stream.write("\n".join(pins))
        stream.flush()
        command = [pip_audit, "--requirement", stream.name, "--no-deps", "--disable-pip", "--format", "json"]
        try:
            done = subprocess.run(command, capture_output=True, text=True)
        except OSError as error:
            return f"{pip_audit}: {error.strerror}"
    try:
        return json.loads(done.stdout)
    except ValueError:
        return (done.stderr.strip().splitlines() or ["it said nothing"])[-1]


def judge(report: dict[str, object] | str, count: int) -> tuple[int, list[str]]:
    """What a report means. One without advisories is worth nothing if it does not know the canary's either."""
    if isinstance(report, str):
        return NOT_CHECKED, [f"pins: NOT CHECKED: no advisories could be asked for ({report})"]
    canary, *entries = report["dependencies"]  # type: ignore[misc]
    if not canary.get("vulns"):
        why = canary.get("skip_reason") or f"the source has nothing against {CANARY}, which has known advisories"
        return NOT_CHECKED, [f"pins: NOT CHECKED: no database of advisories could be reached ({why})"]
    bad = [f"pins: {one['name']} {one['version']}: {flaw['id']}" for one in entries for flaw in one.get("vulns", [])]
    skipped = [f"pins: NOT CHECKED: {one['name']}: {one['skip_reason']}" for one in entries if "skip_reason" in one]
    if len(entries) != count:
        skipped.append(f"pins: NOT CHECKED: {count - len(entries)} of {count} are not in the report")
    code = FAILED if bad else NOT_CHECKED if skipped else PASSED
    return code, [*bad, *skipped, f"pins: {count - len(skipped)} of {count} checked, {len(bad)} advisories"]


def check_rules() -> int:
    """ruff's security rules over the package; pyproject.toml says which do not apply, where and why."""
    command = [str(Path(sys.executable).with_name("ruff")), "check", "--select", "S", "--ignore", "S101", "paddock"]
    code = subprocess.run(command, cwd=PROJECT).returncode
    print(f"rules: {'passed' if code == 0 else 'FAILED'}", flush=True)
    return PASSED if code == 0 else FAILED


def check_tests() -> int:
    """What is held by tests."""
    missing = [name for name in TESTS if not (PROJECT / name).exists()]
    if missing:
        print(f"tests: FAILED: there is no {', '.join(missing)}", flush=True)
        return FAILED
    code = subprocess.run([sys.executable, "-m", "pytest", "-n", "0", *TESTS], cwd=PROJECT).returncode
    print(f"tests: {'passed' if code == 0 else 'FAILED'}", flush=True)
    return PASSED if code == 0 else FAILED


if __name__ == "__main__":
    sys.exit(main(*sys.argv[1:2]))
