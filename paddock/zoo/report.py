"""A report of a check, as people and machines read it: a page, JUnit XML, and Markdown for a pull request."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from paddock.telemetry.format import bytes_, duration
from paddock.zoo.findings import Finding, Report

MARKS = {"passed": "ok  ", "failed": "FAIL", "NOT CHECKED": "????"}
SIGNS = {"passed": "✅ passed", "failed": "❌ failed", "NOT CHECKED": "⚠️ NOT CHECKED"}
_NOT_XML = re.compile(r"[^\t\n\r\x20-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]")
"""What an XML file cannot say, escaped or not."""


def page(report: Report) -> str:
    """For a terminal: a line a finding, what to do below it, and the verdict."""
    width = max(len(finding.check) for finding in report.findings)
    lines = []
    for finding in report.findings:
        prefix = "NOT CHECKED: " if finding.status == "NOT CHECKED" else ""
        lines.append(f"{MARKS[finding.status]} {finding.check:<{width}}  {prefix}{finding}")
        if finding.fix and finding.status != "passed":
            lines += [f"     {'':<{width}}  {line}" for line in f"fix: {finding.fix}".splitlines()]
    return "\n".join([*lines, "", verdict(report)])


def verdict(report: Report) -> str:
    """The whole in a sentence."""
    unchecked = f", {len(report.unchecked)} NOT CHECKED" if report.unchecked else ""
    if report.passed:
        return f"{report.subject} passes{unchecked}"
    count = len(report.failures)
    return f"{report.subject} does not pass: {count} problem{'s' if count > 1 else ''}{unchecked}"


def junit(report: Report) -> str:
    """JUnit XML, as continuous integration shows it: a test a check."""
    suite = ElementTree.Element("testsuite", name=f"paddock zoo check {report.subject}")
    counts = {"tests": 0, "failures": 0, "skipped": 0}
    for check, findings in _by_check(report).items():
        counts["tests"] += 1
        case = report.cases.get(check.removeprefix("case "))
        time = f"{case.seconds:.3f}" if case is not None else "0"
        test = ElementTree.SubElement(suite, "testcase", classname=report.subject, name=check, time=time)
        bad = [finding for finding in findings if finding.status == "failed"]
        unchecked = [finding for finding in findings if finding.status == "NOT CHECKED"]
        if bad:
            counts["failures"] += 1
            failure = ElementTree.SubElement(test, "failure", message=_xml(str(bad[0])))
            failure.text = _xml(
                "\n".join(f"{finding}" + (f"\n  fix: {finding.fix}" if finding.fix else "") for finding in bad)
            )
        elif unchecked:
            counts["skipped"] += 1
            ElementTree.SubElement(test, "skipped", message=_xml(f"NOT CHECKED: {unchecked[0]}"))
    for name, count in counts.items():
        suite.set(name, str(count))
    root = ElementTree.Element("testsuites")
    root.append(suite)
    ElementTree.indent(root)
    return ElementTree.tostring(root, encoding="unicode", xml_declaration=True) + "\n"


def markdown(report: Report) -> str:
    """For a pull request: the verdict, a table of checks, what is wrong, and what was measured."""
    lines = [f"## zoo check: {_cell(verdict(report))}", "", "| check | | |", "|---|---|---|"]
    for check, findings in _by_check(report).items():
        worst = next((finding for finding in findings if finding.status == "failed"), findings[0])
        more = f" (and {len(findings) - 1} more)" if len(findings) > 1 else ""
        lines.append(f"| {_cell(check)} | {SIGNS[worst.status]} | {_cell(str(worst))}{more} |")
    if report.cases:
        lines += ["", "| case | loss | samples/s | validation | seconds | memory |", "|---|---|---|---|---|---|"]
    for name, case in report.cases.items():
        loss = f"{case.first_loss:.4g} → {case.last_loss:.4g}" if case.first_loss is not None else "–"
        metrics = ", ".join(f"{metric} {value:.4g}" for metric, value in case.metrics.items()) or "–"
        speed = f"{case.ips:.4g}" if case.ips is not None else "–"
        cells = [_cell(name), loss, speed, _cell(metrics), duration(case.seconds), bytes_(case.memory)]
        lines.append(f"| {' | '.join(cells)} |")
    for finding in report.failures:
        fence = "`" * (3 + _longest_run(finding.fix))
        lines += ["", f"**{_cell(finding.check)}**: {_cell(str(finding))}"]
        lines += ["", fence, finding.fix, fence] if finding.fix else []
    return "\n".join(lines) + "\n"


def _by_check(report: Report) -> dict[str, list[Finding]]:
    found: dict[str, list[Finding]] = {}
    for finding in report.findings:
        found.setdefault(finding.check, []).append(finding)
    return found


def _xml(text: str) -> str:
    return _NOT_XML.sub("�", text)


def _cell(text: str) -> str:
    """Text that says in a table of a pull request what it says, and does nothing else there: no links, no mentions."""
    plain = " ".join(text.split())
    return re.sub(r"([\\`*_{}\[\]<>()#+!|@])", r"\\\1", plain).replace("@", "@\u200b")


def _longest_run(text: str) -> int:
    return max((len(found) for found in re.findall("`+", text)), default=0)
