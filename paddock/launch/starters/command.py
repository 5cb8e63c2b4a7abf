"""The `paddock` command that is to be started elsewhere: the words behind `--`."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence
from dataclasses import dataclass

from paddock.errors import ConfigError, did_you_mean

PLACES = (
    *("--nnodes", "--num-nodes", "--nnode", "--node-rank", "--master-addr", "--master-port", "--ctrl-port"),
    *("--node-ips", "--rank-table", "--device-range", "--simulate-nodes", "--rdzv-id", "--min-nodes"),
)
"""Flags that say which machine of a job one is: whoever starts the command adds them."""
PROCESSES = ("--nproc-per-node", "--num-gpus-per-node")
MANY_MACHINES = ("train", "resume", "evaluate", "generate", "benchmark", "doctor")
"""Verbs that several machines do together."""


@dataclass(frozen=True)
class Command:
    """`paddock VERB …`, without what depends on the machine."""

    words: tuple[str, ...]
    processes: int | None
    """What it says of processes on each machine."""

    @property
    def name(self) -> str:
        """For a job: of the verb and what it is about."""
        named = [word for word in self.words[:2] if not word.startswith("-")]
        text = "-".join(named[-1].split("/")) if named else "paddock"
        return "".join(sign if sign.isalnum() else "-" for sign in text.lower()).strip("-") or "paddock"


def parse_command(words: Sequence[str], verbs: Collection[str], form: str) -> Command:
    """The command behind `--`, or an error, if `paddock` would not know it or `form` could not start it."""
    if words and words[0] == "paddock":
        words = words[1:]
    if not words:
        raise ConfigError(f"paddock launch {form} needs a command", fix=f"paddock launch {form} … -- train gpt2/tiny …")
    if words[0] not in verbs:
        raise ConfigError(f'paddock has no verb "{words[0]}"', fix=did_you_mean(words[0], list(verbs)))
    flags = {word.partition("=")[0].replace("_", "-") for word in words if word.startswith("--")}
    if form != "container":
        if words[0] not in MANY_MACHINES:
            fix = "choose from: " + ", ".join(MANY_MACHINES)
            raise ConfigError(f"paddock {words[0]} does not run on several machines", fix=fix)
        if taken := sorted(flags.intersection(PLACES)):
            why = f"paddock launch {form} tells every machine its own"
            raise ConfigError(f"{', '.join(taken)} cannot stand in the command", why=why, fix="leave it out")
    return Command(tuple(words), _processes(words))


def _processes(words: Sequence[str]) -> int | None:
    for word, following in zip(words, [*words[1:], ""], strict=True):
        name, equals, value = word.partition("=")
        if name.replace("_", "-") in PROCESSES:
            text = value if equals else following
            if not re.fullmatch(r"[0-9]{1,6}", text) or int(text) < 1:
                raise ConfigError(f"{name} = {text}", why="it is a number of processes", fix=f"{name} 8")
            return int(text)
    return None
