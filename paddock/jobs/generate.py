"""Writing text with a trained model, on one process or many: continuing prompts, or answering what was read."""

from __future__ import annotations

import json
from collections import deque
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from paddock.checkpoint.stored_run import source_path
from paddock.data.lines import read_lines
from paddock.data.tokenizers.interface import check_text
from paddock.devices import select
from paddock.devices.config import WeightFormat
from paddock.errors import ConfigError, DataError, bad_value
from paddock.files import open_stream, scratch_folder
from paddock.inference.generation.generate import Limits
from paddock.inference.generation.options import GenerationOptions
from paddock.inference.generation.prompts import PromptCheck
from paddock.inference.generation.records import Records, read_records
from paddock.inference.generation.replica_leader import ReplicaLeader, check_layout, lead_replica
from paddock.inference.generation.text_generator import Continuation, OnStep, TextGenerator
from paddock.inference.trained import read_trained_config
from paddock.launch.environment import with_free_threads, world_of
from paddock.launch.facts import flat
from paddock.launch.options import LaunchOptions
from paddock.launch.placement.find import located
from paddock.launch.preflight import compared
from paddock.launch.run import run
from paddock.objects.address import is_address
from paddock.parallel.config import ParallelConfig
from paddock.parallel.world import join_world
from paddock.telemetry.format import count
from paddock.telemetry.screen.terminal import OnProgress, progress_bar, show_text

BLOCK = 1024
"""Prompts whose texts are in memory together."""


@dataclass(frozen=True)
class TextJob:
    """What is to be written, by which model, and how: plain values, so that other processes can be told."""

    source: str
    """A run directory, a checkpoint or a Hugging Face folder."""
    options: GenerationOptions = field(default_factory=GenerationOptions)
    prompts: tuple[str, ...] = ()
    prompt_file: str | None = None
    """More of them, a line each."""
    stops: tuple[str, ...] = ()
    """A text ends before the first of these that comes."""
    device: str = "auto"
    format: WeightFormat = "float32"
    """What the weights are in."""
    parallel: dict[str, Any] = field(default_factory=dict)
    """The layout, where it is not one process."""
    sequences: int = 32
    """Sequences that are written at once, at most."""
    cache_bytes: int = 2**31
    """What their keys and values may take, in one process."""

    def check(self) -> None:
        """Raise a ConfigError for what cannot be."""
        for prompt in self.prompts:
            check_text("--prompt", prompt)
        self.options.check()
        if "" in self.stops:
            raise bad_value("--stop", '""', "every text begins with nothing, and would end there", "give some text")
        for flag, value in (("--max-batch", self.sequences), ("--cache-gigabytes", self.cache_bytes)):
            if value < 1:
                raise bad_value(flag, value, "nothing could be written", "more than 0")

    def settings(self) -> dict[str, Any]:
        """What its texts depend on, besides the prompts."""
        return {"model": self.source, "format": self.format, "stop": list(self.stops), **asdict(self.options)}

    def keep_prompts(self, path: Path) -> int:
        """Write all prompts to a file, those of another one too, a JSON string a line: none is text that cannot be, or
        too long for the model, and what a shell puts in place of a file can be read once. Returns how many."""
        count, checks = 0, None
        named = chain(self._named(), () if self.prompt_file is None else read_prompts(self.prompt_file))
        with open(path, "w", encoding="utf-8") as stream:
            while block := list(islice(named, BLOCK)):
                checks = checks or PromptCheck(self.source, self.options)
                checks.check(block)
                stream.writelines(json.dumps(prompt) + "\n" for _, prompt in block)
                count += len(block)
        if not count:
            raise ConfigError("there is no prompt", fix='give --prompt "some text", or --prompt-file FILE')
        return count

    def _named(self) -> Iterator[tuple[str, str]]:
        """The prompts of the command line, each by what errors call it."""
        count = len(self.prompts)
        for number, prompt in enumerate(self.prompts, start=1):
            yield f"prompt {number} of {count}" if count > 1 else "the prompt", prompt


def read_prompts(path: str) -> Iterator[tuple[str, str]]:
    """The lines of a file that are not blank, each with its place."""
    try:
        with open_stream(path) as stream:
            for where, line in read_lines(stream, f"--prompt-file {path}"):
                if line.strip():
                    check_text(where, line)
                    yield where, line
    except OSError as error:
        raise DataError(f"cannot read --prompt-file {path}", why=error.strerror or "") from None


def continue_text(
    job: TextJob,
    launch: LaunchOptions = LaunchOptions(),  # noqa: B008 - frozen
    output: Path | None = None,
    *,
    live: bool = False,
) -> Iterator[Continuation]:
    """Continue every prompt, or answer it where the model reads what it is given; in the order of the prompts. With
    `output` they are kept in that file, and what a stopped job left there is gone on with. A text that is `live`, the
    only one, is shown on standard output as it comes."""
    job.check()
    launch.check()
    launch = located(launch)
    asked = {**job.settings(), "parallel": job.parallel}  # of all machines; where each keeps a copy is its own matter
    if is_address(job.source):
        job = replace(job, source=str(source_path(job.source)))  # once: all processes take the same
    with scratch_folder() as folder, compared(launch, job.device, asked):
        path = folder / "texts.jsonl" if output is None else output
        payload = {"prompts": str(folder / "prompts.jsonl"), "texts": str(path), "live": live}
        payload["count"] = job.keep_prompts(folder / "prompts.jsonl")
        check_layout(job.source, ParallelConfig(**job.parallel), world_of(launch))
        Records(path, job.settings(), job.options.num_return_sequences).check()
        told = asdict(replace(job, prompts=(), prompt_file=None))
        launch = with_free_threads(launch, job.device)
        if run("paddock.jobs.generate:work", {"job": told, **payload}, launch, folder, asked=flat(asked)):
            for record in read_records(path):
                yield Continuation(**record)


def work(payload: dict[str, Any]) -> bool:
    """One process's part. Returns whether this is the one that wrote the texts down."""
    given = payload["job"]
    job = TextJob(**{**given, "stops": tuple(given["stops"]), "options": GenerationOptions(**given["options"])})
    with join_world(select(job.device)) as world, ExitStack() as stack:
        size = read_trained_config(job.source).num_parameters()
        products = json.dumps(world.adapter.choose_products("auto", size) if world.is_main else {})
        stack.enter_context(world.adapter.using_products(json.loads(world.broadcast(products))))
        leader = stack.enter_context(lead_replica(job.source, ParallelConfig(**job.parallel), world, job.format))
        if leader is not None:
            _write(job, leader, payload)
        return world.is_main


def _write(job: TextJob, leader: ReplicaLeader, payload: dict[str, Any]) -> None:
    """What a process that leads does: block after block, of which it writes its share."""
    limits = Limits(job.sequences, job.cache_bytes)
    generator = TextGenerator(leader.trained, job.options, job.stops, limits, leader.replica)
    prompts, texts, main = Path(payload["prompts"]), Path(payload["texts"]), leader.number == 0
    records = Records(texts, job.settings(), job.options.num_return_sequences)
    blocks = _blocks(prompts, records, job.options.num_return_sequences) if main else iter(())
    with progress_bar("generate", visible=main and not payload["live"]) as show:
        progress = _Progress(show, payload["count"], job.options.num_return_sequences, leader.replicas)
        while block := json.loads(leader.gather(json.dumps(next(blocks, []) if main else []))[0]):
            on_step = progress.begin(block[0][0])
            mine = _texts(generator, block[leader.number :: leader.replicas], on_step, live=payload["live"])
            everyone = [deque(json.loads(told)) for told in leader.gather(json.dumps(mine))]
            if main:
                turns = [everyone[place % len(everyone)] for place in range(len(block))]
                texts_of_all = [turn.popleft() for turn in turns for _ in range(job.options.num_return_sequences)]
                records.add(texts_of_all)
                progress.end(block[-1][0] + 1, sum(one["tokens"] for one in texts_of_all))
    if main:
        records.finish()


class _Progress:
    """How far the job is: shown after every token, since a block takes long. Of replicas, the others are taken to be as
    far in a block as the one that shows it; what they have done is known at its end."""

    def __init__(self, show: OnProgress, prompts: int, copies: int, replicas: int) -> None:
        self._show, self._prompts, self._copies, self._replicas = show, prompts, copies, replicas
        self._tokens = 0

    def begin(self, first: int) -> OnStep:
        """A block begins with this prompt."""

        def on_step(ended: int, tokens: int) -> None:
            done = min(first + ended * self._replicas // self._copies, self._prompts)
            self._tell(done, self._tokens + tokens * self._replicas)

        return on_step

    def end(self, done: int, tokens: int) -> None:
        """The block has ended, with so many tokens."""
        self._tokens += tokens
        self._tell(done, self._tokens)

    def _tell(self, done: int, tokens: int) -> None:
        self._show(done, self._prompts, f"{count(tokens)} tokens")


def _blocks(path: Path, records: Records, copies: int) -> Iterator[list[tuple[int, str]]]:
    """Prompts with their numbers, those aside whose texts are there already."""
    with open(path, encoding="utf-8") as stream:
        prompts = enumerate(json.loads(line) for line in stream)
        for place, record in enumerate(records.begin()):
            if place % copies == 0:
                number, prompt = next(prompts, (place // copies, None))
                if record["prompt"] != prompt:
                    raise DataError(
                        f"prompt {number + 1} is another than when the job was stopped",
                        why=f"its text is there already, of {str(record['prompt'])[:60]!r}",
                        fix="give the same prompts, or name another file for the texts",
                    )
        while block := list(islice(prompts, BLOCK)):
            yield block


def _texts(
    generator: TextGenerator, block: list[tuple[int, str]], on_step: OnStep, *, live: bool
) -> list[dict[str, Any]]:
    """What becomes of numbered prompts; with `live`, of the only one, it is shown as it comes."""
    numbers, prompts = [number for number, _ in block], [prompt for _, prompt in block]
    found: list[Continuation] = []
    if live and generator.continues:
        show_text(prompts[0])
    for _, piece in generator.pieces(prompts, found, numbers, on_step):
        if live:
            show_text(piece)
    if live:
        show_text("\n")
    return [one.record() for one in found]
