"""Preprocessing: read, encode, write, and note how far it is, so that the same command can go on after any end."""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, replace
from itertools import accumulate

from paddock.data.indexed.writer import WriterPosition
from paddock.data.preprocess.chunks import Chunk, read_chunks
from paddock.data.preprocess.encoding import ChunkEncoder, EncodedChunk
from paddock.data.preprocess.inputs import Input, check_readable, find_inputs, stat_input
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.journal import Counts, Journal, Progress, facts_of
from paddock.data.preprocess.outputs import (
    Outputs,
    WrittenCorpus,
    check_free,
    exclusive_lock,
    remove_partial,
    skipped_list,
)
from paddock.data.preprocess.workers import chunk_encoding
from paddock.data.tokenizers.remembered import remember_tokenizer
from paddock.errors import DataError, UserError


@dataclass(frozen=True)
class Snapshot:
    """How far a job is; `consumed` of `total` bytes of its input files are done (None: a stream, of any length)."""

    counts: Counts
    tokens: int
    consumed: int
    total: int | None


@dataclass(frozen=True)
class Preprocessed:
    """What a job has written, over all of its runs."""

    corpora: list[WrittenCorpus]
    counts: Counts
    num_inputs: int
    skipped_list: str | None


@dataclass(frozen=True)
class Watch:
    """What the outside wants to know, and to say: how far it is, and whether to stop."""

    begins: Callable[[Sequence[Input], Progress | None], None] = lambda inputs, resumed: None
    """Called once, with the point at which an earlier run has stopped."""
    advances: Callable[[Snapshot], None] = lambda snapshot: None
    stopped: Callable[[], bool] = lambda: False


def preprocess(job: PreprocessJob, watch: Watch | None = None) -> Preprocessed:
    """Do the job, or what is left of it. KeyboardInterrupt, when the watch says stop, leaves it to be continued."""
    job.check()
    with exclusive_lock(job.output_prefix):
        return _Run(job, watch or Watch()).execute()


class _Run:
    def __init__(self, job: PreprocessJob, watch: Watch) -> None:
        self._job, self._watch = job, watch
        self._inputs = find_inputs(job.inputs)
        job.check_forms(self._inputs)
        for source in self._inputs:
            check_readable(source, job.json_keys)
        self._resumable = not any(source.is_stream for source in self._inputs)
        self._journal = Journal(job, facts_of(job, self._inputs))
        self._encoder = ChunkEncoder(job)
        self._begins = list(accumulate((source.size or 0 for source in self._inputs), initial=0))
        """Where each input begins, if they lay one after the other; and where all end."""
        self._progress = Progress()
        self._tokens = 0
        self._half_written = False

    def execute(self) -> Preprocessed:
        resumed = self._find_progress()
        if resumed is None:
            check_free(self._job)
        else:
            self._progress = resumed
            self._tokens = sum(at.tokens for at in resumed.writers.values())
        self._watch.begins(self._inputs, resumed)
        with Outputs(self._job, self._encoder.dtype, self._progress, keep_partial=self._resumable) as outputs:
            try:
                self._work(outputs)
                self._check_end()
            except BaseException:
                self._leave(outputs)
                raise
            corpora = outputs.describe(self._note(outputs))
            for corpus in corpora:  # before it has its name, so that none ever lacks its tokenizer
                remember_tokenizer(self._encoder.tokenizer, corpus.prefix)
        self._journal.remove()
        listed = str(skipped_list(self._job)) if self._progress.counts.skipped else None
        return Preprocessed(corpora, self._progress.counts, len(self._inputs), listed)

    def _find_progress(self) -> Progress | None:
        if not self._job.restart:
            return self._journal.load()
        self._forget()
        return None

    def _work(self, outputs: Outputs) -> None:
        job, watch = self._job, self._watch
        begin, size = self._progress.position, job.chunk_bytes
        chunks = read_chunks(self._inputs, begin, size, watch.stopped, job.document, job.json_keys)
        in_place = job.workers == 1 or (self._resumable and self._begins[-1] <= job.chunk_bytes)
        with chunk_encoding(job, self._encoder, in_place, watch.stopped) as encode:
            noted = time.monotonic()
            for chunk, encoded in encode(chunks):
                self._take(outputs, chunk, encoded)
                consumed = self._begins[chunk.begin.input] + chunk.consumed
                total = self._begins[-1] if self._resumable else None
                watch.advances(Snapshot(self._progress.counts, self._tokens, consumed, total))
                if time.monotonic() - noted >= job.checkpoint_seconds:
                    self._note(outputs)
                    noted = time.monotonic()
                if watch.stopped():
                    raise KeyboardInterrupt

    def _take(self, outputs: Outputs, chunk: Chunk, encoded: EncodedChunk) -> None:
        source = self._inputs[chunk.begin.input]
        if encoded.bad and self._job.on_error == "stop":
            first = encoded.bad[0]
            raise DataError(
                f"{source.name}, {source.unit} {first.line}: {first.reason}",
                why=f"by its name it is {source.kind}",
                fix=first.other_key("--json-keys")
                + f"correct the {source.unit}, or leave such {source.unit}s out with --on-error skip, which lists "
                "them",
            )
        self._half_written = True
        outputs.skip(source.name, encoded.bad)
        outputs.add(encoded)
        self._half_written = False
        self._tokens += sum(len(part.tokens) for part in encoded.keys)
        counts = Counts(encoded.num_documents, encoded.num_empty, len(encoded.bad), len(chunk.data))
        self._progress = replace(self._progress, position=chunk.end, counts=self._progress.counts + counts)

    def _note(self, outputs: Outputs) -> dict[str, WriterPosition]:
        """Make everything so far safe, and then say so in the journal."""
        written = outputs.flush()
        if self._resumable:
            self._journal.save(replace(written, position=self._progress.position, counts=self._progress.counts))
        return written.writers

    def _leave(self, outputs: Outputs) -> None:
        """Keep what is worth it. The error that brought us here is the one to report, so there is no other."""
        with suppress(UserError, OSError):
            if self._tokens and not self._half_written:
                self._note(outputs)
            if not self._tokens or not self._journal.path.exists():
                self._forget()

    def _forget(self) -> None:
        outputs = self._journal.outputs()
        self._journal.remove()
        remove_partial(self._job, outputs)

    def _check_end(self) -> None:
        for source in self._inputs:
            if stat_input(source.path) != source:
                self._tokens = 0
                raise DataError(
                    f"{source.name} changed while it was read",
                    why=f"nobody knows which of its {source.unit}s were read before that",
                    fix="run the same command again when nobody writes to it",
                )
        counts = self._progress.counts
        if not self._tokens:
            raise DataError(
                "there is no document in the input",
                why=f"{counts.bytes} bytes, {counts.skipped} bad lines, {counts.empty} texts without a token",
                fix="check --input: one JSON object a line, text in a file whose name ends in .txt, or a .parquet",
            )
