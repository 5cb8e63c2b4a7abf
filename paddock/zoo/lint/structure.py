"""Whether a contribution has the files that it should have, and nothing that has no place in it."""

from __future__ import annotations

from pathlib import Path

from paddock.errors import nearest
from paddock.telemetry.format import bytes_
from paddock.zoo.contribution import LARGEST_FILE, MODEL_FILE, MOST_BYTES, MOST_FILES, SCRIPTS, Contribution
from paddock.zoo.findings import Finding, failed, passed_unless

CHECK = "structure"
REQUIRED = {
    "requirements.txt": "what to install, pinned",
    "README.md": "what the model is, its data, how to train it, and what comes of it",
    f"{SCRIPTS}/argument.py": "the parameters of the run interface",
    f"{SCRIPTS}/formate_cmd.py": "how the command is printed (spelt as in the ModelZoo)",
    f"{SCRIPTS}/README.md": "what each parameter means",
    MODEL_FILE: "the cases to run",
}


def check_structure(contribution: Contribution) -> list[Finding]:
    """Required files, links that lead out, sizes, and Python that can be parsed."""
    findings = [*_missing(contribution), *_strange(contribution), *_too_large(contribution)]
    findings += [
        failed(CHECK, "it is not valid Python", str(path), "python -m py_compile shows the line")
        for path in contribution.files
        if path.suffix == ".py" and contribution.syntax(path) is None
    ]
    return passed_unless(CHECK, findings, f"{len(contribution.files)} files, all that are required among them")


def _missing(contribution: Contribution) -> list[Finding]:
    findings = []
    names = [str(path) for path in contribution.files]
    for name, meaning in REQUIRED.items():
        if name not in names:
            misspelt = nearest(name, [other for other in names if other not in REQUIRED])
            findings.append(failed(CHECK, f"{name} is missing", fix=misspelt or f"it says {meaning}"))
        elif not contribution.text(name).strip():
            findings.append(failed(CHECK, "the file is empty", name, f"it says {meaning}"))
    if not contribution.scripts():
        findings.append(failed(CHECK, f"{SCRIPTS}/run_NAME.py is missing", fix="paddock zoo new makes one"))
    return findings


def _strange(contribution: Contribution) -> list[Finding]:
    findings = [
        failed(CHECK, "it is neither a file nor a folder", str(path), "remove it") for path in contribution.others
    ]
    for path in contribution.links:
        if not leads_inside(contribution.folder, path):
            findings.append(failed(CHECK, "a symbolic link leads out of the contribution", str(path), "copy the file"))
    return findings


def leads_inside(folder: Path, path: Path) -> bool:
    """Whether what a path inside a folder finally is, is inside it too."""
    try:
        return (folder / path).resolve().is_relative_to(folder.resolve())
    except (OSError, RuntimeError):  # a link to itself
        return False


def _too_large(contribution: Contribution) -> list[Finding]:
    if not contribution.is_complete:
        return [failed(CHECK, f"it has more than {MOST_FILES:,} files", fix="leave out data and what can be made")]
    fix = "publish weights and data, and say in README.md where they are"
    sizes = {path: contribution.size(path) for path in contribution.files}
    findings = [
        failed(
            CHECK, f"the file has {bytes_(size)}, and a contribution's at most {bytes_(LARGEST_FILE)}", str(path), fix
        )
        for path, size in sizes.items()
        if size > LARGEST_FILE
    ]
    if (total := sum(sizes.values())) > MOST_BYTES:
        findings.append(failed(CHECK, f"it has {bytes_(total)}, and may have {bytes_(MOST_BYTES)}", fix=fix))
    return findings


def is_safe_to_copy(contribution: Contribution) -> bool:
    """Whether a copy of it is small, and holds nothing from elsewhere."""
    return not _strange(contribution) and not _too_large(contribution)
