"""`paddock data inspect|merge|verify`."""

from __future__ import annotations

import json
import sys
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import tyro

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.cli.pages import show_page
from paddock.errors import ConfigError, did_you_mean
from paddock.telemetry.format import bytes_

if TYPE_CHECKING:
    from paddock.data.indexed.inspection import DocumentSample, Inspection, LengthRange
    from paddock.data.indexed.verification import Verification
    from paddock.tasks.span_preview import SpanPreview

Prefixes = Annotated[tyro.conf.Positional[tuple[str, ...]], tyro.conf.arg(metavar="PREFIX…")]
BAR = 40
"""Characters of the longest bar of a histogram."""


@dataclass(frozen=True)
class InspectOptions:
    """Look into an indexed corpus: counts, how long its documents are, and what some of them say.

    A corpus is PREFIX.bin and PREFIX.idx, as `paddock preprocess`, Megatron-LM or LiBai write them; both forms of
    index are read. Samples are shown as text if a tokenizer is named or a tokenizer.json lies beside the corpus, and
    as token ids otherwise.

        paddock data inspect corpus_text_document --vocab-file vocab.json --merge-file merges.txt
        paddock data inspect corpus_text_sentence --tokenizer-model spiece.model --task span_corruption

    With --task span_corruption the samples are passages before and after: the text, what the encoder would read of
    it, and what the decoder would write."""

    prefix: Annotated[tyro.conf.Positional[str], tyro.conf.arg(metavar="PREFIX")]
    """The corpus: its files' path without .bin or .idx."""
    documents: int = 3
    """How many documents to show the beginning of, spread over the corpus; 0 shows the numbers alone."""
    tokenizer: Path | None = None
    """A tokenizer.json, or a folder that holds a tokenizer."""
    vocab_file: Path | None = None
    """The vocab.json of a GPT-2 tokenizer (with --merge-file), or the vocab.txt of BERT's."""
    merge_file: Path | None = None
    """The merges.txt of a GPT-2 tokenizer."""
    tokenizer_model: Path | None = None
    """The spiece.model of a SentencePiece tokenizer."""
    extra_ids: int | None = None
    """Sentinels <extra_id_0>, … to add to a SentencePiece model or a vocab.txt."""
    task: str | None = None
    """Show what this task makes of the samples: span_corruption."""
    sequence_length: int | None = None
    """--task: tokens that the encoder reads, as --data.sequence-length in training."""
    target_length: int | None = None
    """--task: tokens that the decoder writes."""
    masking: float | None = None
    """--task: the part of the tokens that is cut out."""
    mean_span: float | None = None
    """--task: tokens in a span, on average."""
    seed: int = 1234
    """--task: another seed cuts out other spans."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class MergeOptions:
    """Join indexed corpora into one: all documents of the first, then of the second, and so on.

    Memory stays small at any size. Document borders are kept. Where token types differ, the smallest one that holds
    all is written. The new corpus appears only when it is complete. A legacy index becomes today's form, so merging a
    single corpus converts it.

        paddock data merge part_0_text_document part_1_text_document --output-prefix all_text_document
        paddock data merge --input FOLDER --output-prefix all_text_document"""

    output_prefix: str
    """The corpus to write: its files' path without .bin or .idx."""
    prefixes: Prefixes = ()
    """The corpora to join, in this order."""
    input: Path | None = None
    """A folder: join every corpus in it, by name (Megatron-LM's flag)."""
    overwrite: bool = False
    """Replace a corpus of that name."""
    json: bool = False
    """Print the result as JSON."""


@dataclass(frozen=True)
class VerifyOptions:
    """Read indexed corpora from end to end and check everything that is known about them.

    Sizes, pointers and document borders; that sequences follow each other without a gap, and no byte is left over;
    that no token lies outside the vocabulary. Prints what is broken and where, and checksums by which copies can be
    compared. Exit code 0 if all are sound, 4 if not.

        paddock data verify corpus_text_document --vocab-size 50257"""

    prefixes: Prefixes = ()
    """The corpora: their files' paths without .bin or .idx."""
    vocab_size: int | None = None
    """Tokens must be below this number."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    verbs = {"inspect": inspect, "merge": merge, "verify": verify}
    wanted, rest = (arguments[0], arguments[1:]) if arguments else ("", [])
    if wanted in HELP_FLAGS:
        show_page(overview())
    elif wanted in verbs:
        verbs[wanted](rest)
    else:
        raise ConfigError(
            f'paddock data has no verb "{wanted}"' if wanted else "paddock data needs to know what to do",
            fix=did_you_mean(wanted, list(verbs)),
        )


def overview() -> str:
    """The page behind `paddock data --help`."""
    pages = {
        "inspect PREFIX": InspectOptions,
        "merge PREFIX… --output-prefix P": MergeOptions,
        "verify PREFIX…": VerifyOptions,
    }
    lines = ["usage: paddock data inspect|merge|verify …", "  --help after one of them explains it", ""]
    lines += [f"  {usage:<32} {(page.__doc__ or '').splitlines()[0]}" for usage, page in pages.items()]
    return "\n".join(lines)


def inspect(arguments: list[str]) -> None:
    options = parse(InspectOptions, "data inspect", arguments)
    from paddock.data.indexed.inspection import inspect
    from paddock.jobs.data import TokenizerFiles, find_tokenizer, preview_task

    names = ("sequence_length", "target_length", "masking", "mean_span")
    settings = {name: value for name in names if (value := getattr(options, name)) is not None}
    if settings and options.task is None:
        flag = f"--{next(iter(settings)).replace('_', '-')}"
        raise ConfigError(f"{flag} is for --task", why="nothing else looks at it", fix="add --task span_corruption")
    files = TokenizerFiles(
        options.tokenizer, options.vocab_file, options.merge_file, options.tokenizer_model, options.extra_ids
    )
    tokenizer = find_tokenizer(options.prefix, files) if options.documents else None
    if options.task is None:
        report = inspect(options.prefix, options.documents, tokenizer)
        if options.json:
            print(json.dumps(asdict(report), ensure_ascii=False))
        else:
            show_page(inspection_page(report))
        return
    previews = preview_task(
        options.prefix, options.task, tokenizer, settings, count=options.documents, seed=options.seed
    )
    report = inspect(options.prefix, 0, None)
    if options.json:
        record = {**asdict(report), "samples": [asdict(preview) for preview in previews]}
        print(json.dumps(record, ensure_ascii=False))
    else:
        below = (line for one in previews for line in ("", *_preview_lines(one)))
        show_page("\n".join([inspection_page(report), *below]))


def merge(arguments: list[str]) -> None:
    options = parse(MergeOptions, "data merge", arguments)
    from paddock.jobs.data import merge_corpora

    merged = merge_corpora(list(options.prefixes), options.input, options.output_prefix, options.overwrite)
    print(json.dumps(merged.record()) if options.json else merged)


def verify(arguments: list[str]) -> None:
    options = parse(VerifyOptions, "data verify", arguments)
    from paddock.jobs.data import raise_if_broken, verify_corpora

    reports = verify_corpora(list(options.prefixes), options.vocab_size)
    records = [{"sound": report.sound, **asdict(report)} for report in reports]
    print(json.dumps(records) if options.json else verification_page(reports))
    sys.stdout.flush()
    raise_if_broken(reports)


def inspection_page(report: Inspection) -> str:
    """What a corpus holds, for people."""
    per_document = f" ({report.sequences / report.documents:.1f} a document)" if report.documents else ""
    rows = {
        "corpus": report.prefix,
        "form": f"{report.form} index, {report.dtype} tokens",
        "documents": f"{report.documents:,}",
        "sequences": f"{report.sequences:,}" + (per_document if report.sequences != report.documents else ""),
        "tokens": f"{report.tokens:,}",
        "size": f"{bytes_(report.bytes)} of tokens, {bytes_(report.index_bytes)} of index",
    }
    lines = [f"{name:<10} {value}" for name, value in rows.items()]
    if report.documents:
        lines += ["", "tokens a document", f"  {_summary(report.document_lengths)}", *_bars(report.histogram)]
    if report.sequences != report.documents and report.sequences:
        lines += ["", "tokens a sequence", f"  {_summary(report.sequence_lengths)}"]
    for sample in report.samples:
        lines += ["", *_sample_lines(sample)]
    return "\n".join(lines)


def verification_page(reports: list[Verification]) -> str:
    """What was found in corpora, for people."""
    lines = []
    for report in reports:
        lines.append(f"{'ok  ' if report.sound else 'FAIL'} {report.prefix}")
        lines += [f"       {finding}" for finding in report.findings]
        if report.sha256:
            largest = "" if report.largest_token is None else f", largest token {report.largest_token}"
            lines.append(
                f"     {report.documents:,} documents, {report.sequences:,} sequences, {report.tokens:,} tokens"
                f" ({report.form} index, {report.dtype}{largest})"
            )
            lines += [f"     sha256 {digest}  {name}" for name, digest in report.sha256.items()]
    return "\n".join(lines)


def _summary(lengths: dict[str, float]) -> str:
    return "   ".join(
        f"{name} {value:,.1f}" if name == "mean" else f"{name} {value:,}" for name, value in lengths.items()
    )


def _bars(histogram: list[LengthRange]) -> list[str]:
    tallest = max(part.count for part in histogram)
    names = [f"{part.low:,}" if part.low == part.high else f"{part.low:,}–{part.high:,}" for part in histogram]
    width, digits = max(map(len, names)), len(f"{tallest:,}")
    bars = ["█" * max(1, round(BAR * part.count / tallest)) if part.count else "" for part in histogram]
    return [
        f"  {name:>{width}} {part.count:>{digits},} {bar}".rstrip()
        for name, part, bar in zip(names, histogram, bars, strict=True)
    ]


def _sample_lines(sample: DocumentSample) -> list[str]:
    shown = f"the first {len(sample.ids)} of " if sample.tokens > len(sample.ids) else ""
    content = " ".join(map(str, sample.ids)) if sample.text is None else sample.text
    return [f"document {sample.document:,}: {shown}{sample.tokens:,} tokens", *_safe_lines(content)]


def _preview_lines(preview: SpanPreview) -> list[str]:
    cut = len(preview.target_ids) - preview.spans - 1  # each has its sentinel, and all together an end
    return [
        f"document {preview.document:,}: a passage of {preview.tokens:,} tokens, {cut:,} of them in "
        f"{preview.spans:,} span{'s' if preview.spans > 1 else ''}",
        *_safe_lines(preview.passage),
        f"source ({len(preview.source_ids):,} tokens)",
        *_safe_lines(preview.source),
        f"target ({len(preview.target_ids):,} tokens)",
        *_safe_lines(preview.target),
    ]


def _safe_lines(content: str) -> list[str]:
    """A corpus may hold anything, also what would steer a terminal."""
    lines = ("".join(sign if sign.isprintable() else "�" for sign in line) for line in content.splitlines())
    return [f"  {line}".rstrip() for line in lines]
