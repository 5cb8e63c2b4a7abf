"""Writing text with a trained model, on one process or many: continuing prompts, or answering what was read."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass, field, replace
from itertools import chain, islice
from pathlib import Path
from typing import Any

from paddock.data.lines import read_lines
from paddock.data.tokenizers.interface import check_text
from paddock.data.tokenizers.load import Tokenizer
from paddock.devices import select
from paddock.devices.config import WeightFormat
from paddock.errors import ConfigError, DataError, bad_value
from paddock.files import open_regular, scratch_folder
from paddock.inference.generate import Limits
from paddock.inference.options import GenerationOptions
from paddock.inference.records import Records, read_records
from paddock.inference.text_stream import StoppingText, WholeText
from paddock.inference.trained import need_tokenizer, read_trained_config
from paddock.inference.writer import Writer, check_layout, open_writer
from paddock.launch.environment import world_of
from paddock.launch.options import LaunchOptions
from paddock.launch.run import run
from paddock.parallel.config import ParallelConfig
from paddock.parallel.world import join_world
from paddock.telemetry.terminal import progress_bar, show_text

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
        """Write all prompts to a file, those of another one too, a JSON string a line: none is text that cannot be, and
        what a shell puts in place of a file can be read once. Returns how many."""
        count = 0
        with open(path, "w", encoding="utf-8") as stream:
            for prompt in chain(self.prompts, () if self.prompt_file is None else read_prompts(self.prompt_file)):
                stream.write(json.dumps(prompt) + "\n")
                count += 1
        if not count:
            raise ConfigError("there is no prompt", fix='give --prompt "some text", or --prompt-file FILE')
        return count


@dataclass(frozen=True)
class Continuation:
    """A prompt and what the model made of it."""

    prompt: str
    text: str
    tokens: int
    continues: bool
    """Whether the text goes on where the prompt ends, rather than answering it."""


def read_prompts(path: str) -> Iterator[str]:
    """The lines of a file that are not blank."""
    try:
        with open_regular(path) as stream:
            for where, line in read_lines(stream, f"--prompt-file {path}"):
                if line.strip():
                    check_text(where, line)
                    yield line
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
    with scratch_folder() as folder:
        path = folder / "texts.jsonl" if output is None else output
        payload = {"prompts": str(folder / "prompts.jsonl"), "texts": str(path), "live": live}
        payload["count"] = job.keep_prompts(folder / "prompts.jsonl")
        check_layout(job.source, ParallelConfig(**job.parallel), world_of(launch))
        Records(path, job.settings(), job.options.num_return_sequences).check()
        told = asdict(replace(job, prompts=(), prompt_file=None))
        run("paddock.jobs.generate:work", {"job": told, **payload}, launch, folder)
        if path.exists():  # else this is not the machine of the main process
            for record in read_records(path):
                yield Continuation(**record)


def work(payload: dict[str, Any]) -> None:
    """One process's part; the first one writes the texts."""
    given = payload["job"]
    job = TextJob(**{**given, "stops": tuple(given["stops"]), "options": GenerationOptions(**given["options"])})
    with join_world(select(job.device)) as world, ExitStack() as stack:
        size = read_trained_config(job.source).num_parameters()
        products = json.dumps(world.adapter.choose_products("auto", size) if world.is_main else {})
        stack.enter_context(world.adapter.using_products(json.loads(world.broadcast(products))))
        writer = stack.enter_context(open_writer(job.source, ParallelConfig(**job.parallel), world, job.format))
        if writer is not None:
            scribe = _Scribe(job, writer, show_text if payload["live"] else None)
            _write(scribe, job, Path(payload["prompts"]), payload["count"], Path(payload["texts"]))


def _write(scribe: _Scribe, job: TextJob, prompts: Path, count: int, texts: Path) -> None:
    """What a process that leads does: block after block, of which it writes its share."""
    writer, main = scribe.writer, scribe.writer.number == 0
    records = Records(texts, job.settings(), job.options.num_return_sequences)
    blocks = _blocks(prompts, records, job.options.num_return_sequences) if main else iter(())
    with progress_bar("generate", visible=main and not scribe.shows) as on_block:
        while block := json.loads(writer.gather(json.dumps(next(blocks, []) if main else []))[0]):
            mine = block[writer.number :: writer.replicas]
            told = [json.loads(texts) for texts in writer.gather(json.dumps(scribe.write(mine)))]
            if main:
                records.add([record for place in range(len(block)) for record in told[place % len(told)].pop(0)])
                on_block(block[-1][0] + 1, count)
    if main:
        records.finish()


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


class _Scribe:
    """Turns prompts into texts, with a model's own tokenizer."""

    def __init__(self, job: TextJob, writer: Writer, show: Callable[[str], object] | None) -> None:
        trained = writer.trained
        self.writer, self._tokenizer, self._show = writer, need_tokenizer(trained), show
        if trained.model.writes is None:
            raise ConfigError(
                f"{job.source} does not write text", fix=f"paddock predict {job.source} … uses it for what it does"
            )
        self._continues = trained.model.writes == "tokens"
        self._stops, self._limits = job.stops, Limits(job.sequences, job.cache_bytes)
        self._options = replace(job.options, stop_token=self._tokenizer.end_of_text_id)

    @property
    def shows(self) -> bool:
        """Whether the text is shown as it comes."""
        return self._show is not None

    def write(self, block: Sequence[tuple[int, str]]) -> list[list[dict[str, Any]]]:
        """For every numbered prompt, what becomes of it: as many records as were asked for."""
        numbers, prompts = [number for number, _ in block], [prompt for _, prompt in block]
        copies = self._options.num_return_sequences
        texts = [self._text() for _ in range(len(prompts) * copies)]
        if self._show is not None and self._continues:
            self._show(prompts[0])

        def on_token(sequence: int, token: int) -> bool:
            new = texts[sequence].push(token)
            if self._show is not None and new:
                self._show(new)
            return texts[sequence].stopped

        ids = [_encode(self._tokenizer, prompt, self._continues) for prompt in prompts]
        results = self.writer.write(ids, self._options, on_token, self._limits, numbers)
        for text in texts:
            rest = text.finish()
            if self._show is not None:
                self._show(rest + "\n")
        found = [
            asdict(Continuation(prompts[place // copies], texts[place].text, len(tokens), self._continues))
            for place, tokens in enumerate(results)
        ]
        return [found[place : place + copies] for place in range(0, len(found), copies)]

    def _text(self) -> StoppingText | WholeText:
        """What becomes of the tokens of a sequence; where gaps are filled in, each piece is behind the gap's name."""
        if self._continues:
            return StoppingText(self._tokenizer.decode, self._stops)
        return WholeText(self._tokenizer.decode_named, self._stops)


def _encode(tokenizer: Tokenizer, prompt: str, continues: bool) -> list[int]:
    """A prompt's tokens: to be continued, or, with its end, to be read."""
    ids, end = tokenizer.encode(prompt), tokenizer.end_of_text_id
    if end is None:
        return ids
    if not continues:
        return [*ids, end]
    return ids or [end]  # nothing said: a document begins
