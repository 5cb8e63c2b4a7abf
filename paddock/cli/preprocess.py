"""`paddock preprocess`."""

from __future__ import annotations

import json
from dataclasses import asdict, dataclass
from typing import Annotated, Literal

import tyro

from paddock.cli.arguments import HELP_FLAGS, parse
from paddock.cores import num_cores
from paddock.data.config import TextDocument
from paddock.data.preprocess.flags import SPELLINGS, TokenizerFlags, TokenizerType, spelling_page, tokenizer_of
from paddock.data.preprocess.job import PreprocessJob
from paddock.errors import ConfigError, bad_value


@dataclass(frozen=True)
class PreprocessOptions:
    """Turn text into indexed tokens, ready for training: JSON lines in, PREFIX_text_document.bin and .idx out.

    Every line of the input is a JSON object; the text is under its key "text", or those that --json-keys names, and
    each key becomes a corpus of its own. A file whose name ends in .txt is plain text: every line is a document, or the
    whole file (--document file). One whose name ends in .parquet is a table: every row is a document, and the keys are
    its columns. The files are those of Megatron-LM, byte for byte, whatever --workers says; beside
    them, in PREFIX_text_document.tokenizer, the corpus keeps its tokenizer. Memory stays small at any size of input.

    Stop it, kill it, start the same command again: it goes on where it was, and the result is the same. The final
    names appear only when all is complete. A line that is no JSON, not UTF-8, or lacks the key is an error that names
    file and line, or is skipped and listed with --on-error skip. Blank lines and texts without a token are left out.

        paddock preprocess --input my-corpus.json --output-prefix my-gpt --tokenizer-type GPT2BPETokenizer \\
          --vocab-file gpt2-vocab.json --merge-file gpt2-merges.txt --append-eod
        zcat *.gz | paddock preprocess --input - --output-prefix all --tokenizer-type HuggingFaceTokenizer \\
          --tokenizer-model tokenizer.json --append-eod"""

    input: Annotated[tuple[str, ...], tyro.conf.arg(metavar="FILE…")]
    """Files of JSON lines or of plain text (.txt), also .gz and .zst; Parquet tables (.parquet, with paddock[parquet]);
    patterns in quotes ('part-*.jsonl'); - is standard input, JSON lines. They are read in this order."""
    output_prefix: Annotated[str, tyro.conf.arg(metavar="P")]
    """The files are P_KEY_document.bin and .idx, or P_KEY_sentence with --split-sentences."""
    tokenizer_type: Annotated[TokenizerType, tyro.conf.arg(aliases=SPELLINGS["tokenizer_type"], metavar="TYPE")]
    """The kind of tokenizer, by the name it has in Megatron-LM or LiBai; see below for the files of each."""
    vocab_file: Annotated[str | None, tyro.conf.arg(aliases=SPELLINGS["vocab_file"], metavar="FILE")] = None
    """The vocabulary: vocab.json, vocab.txt or spiece.model."""
    merge_file: Annotated[str | None, tyro.conf.arg(aliases=SPELLINGS["merge_file"], metavar="FILE")] = None
    """The merges.txt of a GPT-2 tokenizer."""
    tokenizer_model: Annotated[str | None, tyro.conf.arg(metavar="FILE")] = None
    """A spiece.model, a tokenizer.json, or a folder that holds a tokenizer."""
    json_keys: Annotated[tuple[str, ...], tyro.conf.arg(aliases=SPELLINGS["json_keys"], metavar="KEY…")] = ("text",)
    """The keys, or columns of a table, whose text is tokenized; others are ignored."""
    document: TextDocument = "line"
    """Plain text: whether a document is a line or a whole file."""
    append_eod: bool = False
    """End every document with the tokenizer's end-of-text token."""
    end_of_text: Annotated[str | None, tyro.conf.arg(metavar="TOKEN")] = None
    """The token that ends a text, if it is not the usual one of the tokenizer."""
    split_sentences: bool = False
    """Make every sentence a sequence of its own, for BERT and T5; English, Chinese and Japanese, nothing to
    download."""
    keep_newlines: bool = False
    """With --split-sentences: keep the white space behind each sentence."""
    do_lower_case: bool = False
    """BERT: the vocabulary is uncased."""
    do_chinese_wwm: bool = False
    """BERT: mark the characters inside Chinese words, for masking whole words; needs jieba."""
    extra_ids: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """BERT and SentencePiece: add the sentinels <extra_id_0> to <extra_id_N-1>."""
    dataset_impl: Literal["mmap", "lazy", "cached"] = "mmap"
    """The form of the index: mmap is the one that is written."""
    workers: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Processes that tokenize, with one thread each; by default one for every core. One works in place."""
    on_error: Literal["stop", "skip"] = "stop"
    """What to do at a bad line: stop with an error, or skip it and list it in P.skipped.jsonl."""
    log_interval: Annotated[int | None, tyro.conf.arg(metavar="N")] = None
    """Off a terminal: a line of progress every N documents, instead of every ten seconds."""
    overwrite: bool = False
    """Replace finished files of that name."""
    restart: bool = False
    """Begin again instead of going on where an earlier run was stopped."""
    json: bool = False
    """Print the result as JSON."""


def main(arguments: list[str]) -> None:
    try:
        options = parse(PreprocessOptions, "preprocess", arguments)
    except SystemExit:
        if any(flag in arguments for flag in HELP_FLAGS):
            print(spelling_page())
        raise
    job = job_of(options)
    from paddock.jobs.preprocess import run_preprocess

    result = run_preprocess(job, options.log_interval)
    if options.json:
        print(json.dumps(asdict(result)))
        return
    for corpus in result.corpora:
        counts = f"documents {corpus.documents}  sequences {corpus.sequences}  tokens {corpus.tokens}"
        print(f"{corpus.prefix}  {counts}  dtype {corpus.dtype}")


def job_of(options: PreprocessOptions) -> PreprocessJob:
    """The job that a command line asks for."""
    if options.dataset_impl != "mmap":
        raise bad_value(
            "--dataset-impl",
            options.dataset_impl,
            "mmap is the form that is written; the older ones are only read",
            "leave it out, or set it to mmap",
        )
    if options.log_interval is not None and options.log_interval < 1:
        raise bad_value("--log-interval", options.log_interval, "a line comes after some documents", "1 or more")
    if options.extra_ids is not None and options.extra_ids < 0:
        raise ConfigError(f"--extra-ids {options.extra_ids}", why="it is a number of tokens to add", fix="0 or more")
    flags = TokenizerFlags(**{name: getattr(options, name) for name in TokenizerFlags.__dataclass_fields__})
    return PreprocessJob(
        inputs=options.input,
        output_prefix=options.output_prefix,
        tokenizer=tokenizer_of(flags),
        json_keys=options.json_keys,
        append_eod=options.append_eod,
        split_sentences=options.split_sentences,
        keep_newlines=options.keep_newlines,
        document=options.document,
        on_error=options.on_error,
        workers=num_cores() if options.workers is None else options.workers,
        overwrite=options.overwrite,
        restart=options.restart,
    )
