"""Whether what a contribution needs can be installed: each requirement well-formed and pinned, always; there to be had,
if it is installed here, or if an index can be asked and has it for this Python and machine; all of them together
(`conflicts.py`).
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from paddock.zoo.contribution import Contribution
from paddock.zoo.findings import Finding, failed, passed_unless
from paddock.zoo.lint.conflicts import CHECK, FILE, Resolve, check_conflicts, installed
from paddock.zoo.lint.package_index import IndexUnreachable, Release

COMMIT = re.compile(r"@[0-9a-f]{40}(#|$)")
MOST_LINES = 200
Releases = Callable[[str], list[Release] | None]
"""The versions that an index has of a package; None if it has no such package."""


@dataclass(frozen=True)
class Line:
    """A requirement, and where it stands."""

    number: int
    requirement: Requirement

    @property
    def where(self) -> str:
        return f"{FILE}:{self.number}"


def check_requirements(contribution: Contribution, releases: Releases, resolve: Resolve) -> list[Finding]:
    """Every line, and all together; `releases` and `resolve` are asked about what is not installed."""
    if not contribution.has(FILE):
        return [failed(CHECK, f"{FILE} is missing")]
    findings: list[Finding] = []
    lines: dict[str, Line] = {}
    for line in parse_lines(contribution.text(FILE)):
        if isinstance(line, Finding):
            findings.append(line)
            continue
        name = canonicalize_name(line.requirement.name)
        if name in lines:
            findings.append(failed(CHECK, f"{name} is required twice", line.where, f"see line {lines[name].number}"))
        lines[name] = line
    findings += [finding for line in lines.values() if (finding := _unpinned(line)) is not None]
    if findings:
        return findings
    found = [_availability(line, releases) for line in lines.values()]
    problems = [finding for finding in found if finding is not None]
    if any(problem.status == "failed" for problem in problems):
        return problems
    count = f"{len(lines)} requirement{'s' if len(lines) > 1 else ''}"
    return [
        *passed_unless(CHECK, problems, f"{count}, pinned and to be had"),
        check_conflicts([line.requirement for line in lines.values()], resolve),
    ]


def parse_lines(text: str) -> Iterator[Line | Finding]:
    """The requirements of a file, and what is wrong with lines that are none."""
    for number, line in enumerate(text.splitlines()[:MOST_LINES], start=1):
        content = re.sub(r"(^|\s)#.*", "", line).strip()
        if not content:
            continue
        where = f"{FILE}:{number}"
        if content.startswith("-"):
            why = "is an option, and decides for others where they install from"
            yield failed(CHECK, f"{content.split()[0]} {why}", where, "name packages alone")
        elif re.match(r"(git|hg|svn|bzr)\+", content):
            fix = "NAME @ git+https://…@COMMIT; for tcap_dllogger: paddock.telemetry.dllogger has its calls"
            yield failed(CHECK, "a repository is named without its package and commit", where, fix)
        elif content.startswith((".", "/", "~")) or content.endswith((".whl", ".tar.gz")):
            yield failed(CHECK, "it is a file of one machine", where, "name a published package")
        else:
            try:
                yield Line(number, Requirement(content))
            except InvalidRequirement as error:
                reason = str(error).splitlines()[0]
                yield failed(CHECK, f"it is no requirement: {reason[:120]}", where, "NAME==VERSION")


def _unpinned(line: Line) -> Finding | None:
    """Pinned is what will be the same next year: a version, or a range with an end; a commit."""
    requirement = line.requirement
    if requirement.url is not None:
        if requirement.url.startswith("file:"):
            return failed(CHECK, "it is a file of one machine", line.where, "name a published package")
        pinned = COMMIT.search(requirement.url) or "#sha256=" in requirement.url
        fix = "…@COMMIT with all 40 letters of it"
    else:
        pinned = has_end(requirement.specifier)
        fix = f"{requirement.name}==VERSION, ~=VERSION, or >=VERSION,<VERSION"
    return None if pinned else failed(CHECK, f"{requirement.name} is not pinned", line.where, fix)


def has_end(specifiers: SpecifierSet) -> bool:
    """Whether there are versions that it will never take."""
    return any(specifier.operator in ("==", "===", "~=", "<", "<=") for specifier in specifiers)


def _availability(line: Line, releases: Releases) -> Finding | None:
    """What is wrong with a requirement that is well-formed; None if it can be had."""
    requirement = line.requirement
    if requirement.marker is not None and not requirement.marker.evaluate():
        return None  # not for this machine
    if _is_installed(requirement):
        return None
    if requirement.url is not None:
        return Finding(CHECK, "NOT CHECKED", f"{requirement.name} is in a repository", line.where)
    try:
        there = releases(requirement.name)
    except IndexUnreachable as error:
        what = f"{requirement.name}{requirement.specifier} is not installed, and no index could be asked: {error}"
        return Finding(CHECK, "NOT CHECKED", what, line.where)
    if there is None:
        return failed(CHECK, f"the index has no {requirement.name}", line.where, "check its name")
    wanted = set(requirement.specifier.filter([release.version for release in there], prereleases=None))
    if not wanted:
        newest = f"; its newest is {there[-1].version}" if there else ""
        return failed(CHECK, f"no version of {requirement.name} is {requirement.specifier}{newest}", line.where)
    lacking = [release for release in there if release.version in wanted]
    if all(release.lacks for release in lacking):
        last = lacking[-1]
        what = f"{requirement.name} {last.version} cannot be installed here: {last.lacks}"
        return failed(CHECK, what, line.where, "ask for a version that can be, or check on the device's machine")
    return None


def _is_installed(requirement: Requirement) -> bool:
    version = installed(requirement.name)
    if version is None:
        return False
    return requirement.url is not None or requirement.specifier.contains(version, prereleases=True)
