"""Whether requirements fit together: no two of them, nor what they need themselves, exclude each other.

What is installed here is looked at first: it proves that they do, or names two that never will. Otherwise pip is asked
for versions that fit, without installing, and without running anything of the packages: only wheels are looked at.
"""

from __future__ import annotations

import re
import sys
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from importlib import metadata, util
from itertools import permutations

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from paddock.errors import MachineError
from paddock.files import scratch_folder
from paddock.telemetry.format import duration
from paddock.zoo.findings import Finding
from paddock.zoo.lint.package_index import IndexUnreachable, PackageIndex
from paddock.zoo.sandbox import Limits, Outcome, run_in_sandbox

CHECK, FILE = "requirements", "requirements.txt"
FIX = "ask for versions that fit together"
SECONDS = 180.0
"""That pip may take: it may have to download what an index does not describe."""
PIP = (
    *("-m", "pip", "--isolated", "--no-input", "--no-cache-dir", "--disable-pip-version-check", "--no-color"),
    *("--retries", "1", "--timeout", "15"),
    *("install", "--dry-run", "--ignore-installed", "--only-binary", ":all:", "--progress-bar", "off"),
)
NETWORK = (
    *("http_proxy", "https_proxy", "no_proxy", "HTTP_PROXY", "HTTPS_PROXY", "NO_PROXY"),
    *("SSL_CERT_FILE", "REQUESTS_CA_BUNDLE"),
)
"""Variables that say how an index is reached."""
CAUSE = re.compile(r"The conflict is caused by:\n((?:[ \t]+\S.*\n)+)")
Resolve = Callable[[Sequence[Requirement]], Finding]
"""Looks for versions that fit together."""


@dataclass(frozen=True)
class Wish:
    """A requirement, and who has it."""

    by: str
    requirement: Requirement
    is_certain: bool
    """Whether it is there whichever versions are chosen."""

    @property
    def name(self) -> str:
        return canonicalize_name(self.requirement.name)

    def allows(self, version: str) -> bool:
        return self.requirement.specifier.contains(version, prereleases=True)

    def pin(self) -> str | None:
        """The one version that it allows."""
        [first, *rest] = [*self.requirement.specifier, None]
        exact = first is not None and not any(rest) and first.operator in ("==", "===")
        return first.version if exact and first is not None and not first.version.endswith("*") else None

    def only_version(self) -> str | None:
        """The one version that it allows, as it is installed where it is: 2.0.1 allows 2.0.1+cu118, too."""
        here = installed(self.name)
        return here if (pin := self.pin()) is not None and here is not None and self.allows(here) else pin

    def __str__(self) -> str:
        return f"{self.by} asks for {self.requirement.name}{self.requirement.specifier}"


def check_conflicts(requirements: Sequence[Requirement], resolve: Resolve) -> Finding:
    """What can be said of all of them together."""
    wishes, are_all = _wishes(requirements)
    if are_all and all((version := installed(wish.name)) is not None and wish.allows(version) for wish in wishes):
        return Finding(CHECK, "passed", "they fit together, as they are installed here")
    for one, other in permutations([wish for wish in wishes if wish.is_certain], 2):
        if one.name == other.name and (only := one.only_version()) is not None and not other.allows(only):
            return Finding(CHECK, "failed", f"{one}, and {other}", FILE, FIX)
    published = [requirement for requirement in requirements if requirement.url is None]
    if not published:
        return _unknown("what is in a repository pip would have to build")
    found = resolve(published)
    if found.status != "passed" or len(published) == len(requirements):
        return found
    return _unknown("pip finds versions of all that are published; what is in a repository it would have to build")


def installed(name: str) -> str | None:
    """The version of a package that is here."""
    try:
        return metadata.version(name)
    except metadata.PackageNotFoundError:
        return None


def _wishes(requirements: Sequence[Requirement]) -> tuple[list[Wish], bool]:
    """What a contribution asks for, and what the packages that are here in such versions ask for in turn; and whether
    that is all: some packages have requirements that nobody can read any more."""
    waiting = [Wish(FILE, requirement, True) for requirement in requirements if _is_for_here(requirement, {""})]
    wishes: list[Wish] = []
    seen, are_all = set(), True
    while waiting:
        wish = waiting.pop(0)
        wishes.append(wish)
        version, extras = installed(wish.name), frozenset(wish.requirement.extras)
        known = (wish.name, extras, wish.is_certain)
        if version is None or not wish.allows(version) or known in seen:
            continue
        seen.add(known)
        is_certain = wish.is_certain and wish.pin() is not None
        for line in metadata.requires(wish.name) or ():
            try:
                needed = Requirement(line)
            except InvalidRequirement:
                are_all = False
                continue
            if _is_for_here(needed, {"", *extras}):
                waiting.append(Wish(f"{wish.name} {version}", needed, is_certain))
    return wishes, are_all


def _is_for_here(requirement: Requirement, extras: set[str]) -> bool:
    marker = requirement.marker
    return marker is None or any(marker.evaluate({"extra": extra}) for extra in extras)


def ask_pip(index: PackageIndex, requirements: Sequence[Requirement], seconds: float = SECONDS) -> Finding:
    """What pip says, which looks for versions of all of them in the index."""
    try:
        index.releases(requirements[0].name)  # pip would wait long for an index that does not answer
    except IndexUnreachable as error:
        return _unknown(f"no index could be asked: {error}")
    if util.find_spec("pip") is None:
        return _unknown("this Python has no pip")
    with scratch_folder() as scratch:
        folder = scratch / "work"
        folder.mkdir()
        (folder / FILE).write_text("".join(f"{requirement}\n" for requirement in requirements))
        command = [sys.executable, *PIP, "--index-url", f"{index.address}/", "-r", FILE]
        try:
            outcome, printed = run_in_sandbox(command, folder, folder, Limits(seconds=seconds), NETWORK)
        except MachineError as error:
            return _unknown(str(error.what))
    return what_pip_says(outcome, printed, seconds)


def what_pip_says(outcome: Outcome, printed: str, seconds: float) -> Finding:
    """Its answer, by how it ended and what it printed."""
    if outcome.status == 0 and outcome.ended is None:
        return Finding(CHECK, "passed", "they fit together: pip has found versions of all that they need")
    if cause := CAUSE.search(printed):
        reasons = "; ".join(" ".join(line.split()) for line in cause[1].splitlines())
        return Finding(CHECK, "failed", f"no versions fit together: {reasons}", FILE, FIX)
    if outcome.ended is not None:
        wanted = f"more than {duration(seconds)}" if outcome.ended == "time" else f"too much: {outcome.ended}"
        return _unknown(f"pip wanted {wanted}")
    errors = [line.removeprefix("ERROR: ") for line in printed.splitlines() if line.startswith("ERROR: ")]
    return _unknown(f"pip, which looks at wheels alone, says: {errors[-1][:200] if errors else 'nothing'}")


def _unknown(why: str) -> Finding:
    return Finding(CHECK, "NOT CHECKED", f"whether they fit together: {why}", FILE)
