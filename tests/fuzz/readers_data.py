"""Readers of data: indexed corpora, JSON lines, text, SQuAD, labels, what models are asked and write, metrics,
caches."""

from __future__ import annotations

import gzip
import json
import tempfile
from functools import cache
from importlib import import_module
from importlib.util import find_spec
from io import BytesIO
from pathlib import Path
from random import Random
from typing import Any, get_args

import numpy as np
import torch
from engine import Reader, files_in, scratch
from mutation import Files, damage_bytes, damage_text, json_mutator, lines_mutator

from paddock.data.cache import ArrayCache, Arrays
from paddock.data.config import CorpusConfig, MaskedConfig, TokenizerConfig
from paddock.data.indexed.inspection import inspect
from paddock.data.indexed.merging import plan_merge
from paddock.data.indexed.reader import IndexedTokens
from paddock.data.indexed.verification import verify
from paddock.data.labels.config import LabelledTextData
from paddock.data.labels.text import LabelledFile, load_rows
from paddock.data.language.prepare import prepare
from paddock.data.measuring.config import LambadaData, TextData
from paddock.data.measuring.lambada import load_examples
from paddock.data.measuring.text import load_text
from paddock.data.preprocess.chunks import Chunk, Position
from paddock.data.preprocess.encoding import ChunkEncoder
from paddock.data.preprocess.job import PreprocessJob
from paddock.data.preprocess.run import Watch, preprocess
from paddock.data.preprocess.tables import check_table, read_table, table_errors
from paddock.data.questions.config import QuestionAnsweringData
from paddock.data.questions.features import QuestionFile, load_features
from paddock.data.questions.synthetic import synthetic_squad
from paddock.data.sequence_pairs.config import SequencePairsData
from paddock.data.sequence_pairs.text import PairsFile, load_pairs
from paddock.data.tokenizers.engine import EngineTokenizer
from paddock.errors import DataError
from paddock.inference.generation.records import Records
from paddock.inference.generation.records import read_records as read_written
from paddock.inference.predictors import Predictor, PredictorSetup, predictor_of
from paddock.jobs.predict import predict, read_inputs
from paddock.models.bert.config import BertConfig
from paddock.models.layers.initialization import initialize
from paddock.models.registry import build_model
from paddock.telemetry.jsonl import JsonLinesSink, encode_record, read_metrics
from paddock.testing.samples.corpora import INDEX, LEGACY, TOKENS
from paddock.testing.samples.texts import word_tokenizer, write_vocabulary

FEW = 8
"""Rows, sequences or samples that are looked at of what was read."""


@cache
def tokenizer() -> EngineTokenizer:
    return word_tokenizer(scratch())


# Indexed corpora


def index_seeds() -> list[Files]:
    wide = INDEX[:17] + b"\x04" + INDEX[18:]
    return [
        {"corpus.idx": INDEX, "corpus.bin": TOKENS},
        {"corpus.idx": LEGACY, "corpus.bin": TOKENS},
        {"corpus.idx": INDEX + b"\x00\x01\x00", "corpus.bin": TOKENS},
        {"corpus.idx": wide.replace(b"\x06\0\0\0\0\0\0\0\x08", b"\x0c\0\0\0\0\0\0\0\x10"), "corpus.bin": TOKENS * 2},
    ]


def read_index(folder: Path) -> object:
    prefix = str(folder / "corpus")
    corpus = IndexedTokens(prefix)
    tokens = [corpus[number].tolist() for number in range(min(len(corpus), FEW))]
    whole = corpus.read(0, len(corpus)).tolist()
    assert sum(map(len, tokens)) <= len(whole) == corpus.num_tokens
    verified = verify(prefix, 2**20, lambda number: None)
    inspect(prefix, 2, None)
    plan_merge([prefix], str(folder / "merged"), False)
    return tokens, whole, verified.sound


# JSON lines, and a job that goes on


def lines_seeds() -> list[Files]:
    texts = ["The capital of Germany is Berlin.", "", "Where? In Germany! Berlin is it.", "中国 é"]
    lines = [json.dumps({"text": text, "id": number}) for number, text in enumerate(texts)]
    return [{"input.jsonl": "\n".join(lines).encode() + b"\n"}, {"input.jsonl": b"\xef\xbb\xbf" + lines[0].encode()}]


def job_of(folder: Path, **settings: Any) -> PreprocessJob:
    usual = {"tokenizer": TokenizerConfig(kind="wordpiece", vocab=str(vocabulary()))}
    return PreprocessJob((str(folder / "input.jsonl"),), str(folder / "out"), **{**usual, **settings})


@cache
def vocabulary() -> Path:
    return write_vocabulary(scratch())


@cache
def encoder() -> ChunkEncoder:
    return ChunkEncoder(job_of(scratch(), split_sentences=True, append_eod=True))


def read_lines(folder: Path) -> object:
    encoded = encoder()(Chunk(Position(), (folder / "input.jsonl").read_bytes(), 0))
    assert all(len(part.tokens) == part.sizes.sum() for part in encoded.keys)
    return encoded.num_documents, [bad.reason[:80] for bad in encoded.bad]


def text_seeds() -> list[Files]:
    plain = "Berlin is the capital.\n\nWhere? In Germany, größer.\r\n\t中国 é\x0c\n".encode()
    lines = [json.dumps({"text": text, "id": 1}, ensure_ascii=False) for text in ("Berlin is it", "中国\tin\n")]
    return [
        {"in.txt": plain},
        {"in.txt": b"\xef\xbb\xbf" + plain, "more.jsonl": "\n".join(lines).encode()},
        {"in.txt.gz": gzip.compress(plain, mtime=0)},
        {"whole.txt": plain},
    ]


def read_text_source(folder: Path) -> object:
    """What training finds in a folder of files: all of their documents, or an error."""
    files = tuple(str(path) for path in sorted(folder.iterdir()))
    document: Any = "file" if (folder / "whole.txt").exists() else "line"
    data = CorpusConfig(source="text", path=files, document=document, cache=str(folder / "cache"))
    words = TokenizerConfig(kind="wordpiece", vocab=str(vocabulary()))
    corpus = IndexedTokens(prepare(data, words, 1000).prefixes[0][1])
    tokens = [corpus[number].tolist() for number in range(len(corpus))]
    assert all(len(row) > 1 and row[-1] == tokenizer().sep_id for row in tokens)
    return len(tokens), sum(map(len, tokens))


STOPPED_INPUT = "".join(json.dumps({"text": f"Berlin is in Germany {number}."}) + "\n" for number in range(12)).encode()


def stopped_seeds() -> list[Files]:
    """Jobs that were stopped after some of their chunks, as they lie on the disk."""
    found = []
    for chunks in (1, 3):
        with tempfile.TemporaryDirectory(dir=scratch()) as place:
            _run_stopped(Path(place), chunks)
            files = files_in(Path(place))
        found.append({name: content for name, content in files.items() if name != "input.jsonl"})
    return found


def _run_stopped(folder: Path, chunks: int) -> None:
    _write_stopped_input(folder)
    seen: list[object] = []
    try:
        preprocess(stopped_job(folder), Watch(advances=seen.append, stopped=lambda: len(seen) >= chunks))
    except KeyboardInterrupt:
        return
    raise AssertionError("the job was not stopped")


def _write_stopped_input(folder: Path) -> None:
    """The same file for every input: the journal knows it by its path, size and time."""
    path = stopped_place() / "input.jsonl"
    if not path.exists():
        path.parent.mkdir(exist_ok=True)
        path.write_bytes(STOPPED_INPUT)


def stopped_place() -> Path:
    return scratch() / "stopped"


def stopped_job(folder: Path) -> PreprocessJob:
    inputs = (str(stopped_place() / "input.jsonl"),)
    tokens = TokenizerConfig(kind="wordpiece", vocab=str(vocabulary()))
    return PreprocessJob(inputs, str(folder / "out"), tokens, chunk_bytes=100, checkpoint_seconds=0.0)


def read_stopped(folder: Path) -> object:
    """What a job that goes on leaves behind."""
    preprocess(stopped_job(folder))
    return {name: content for name, content in files_in(folder).items() if name.endswith((".bin", ".idx"))}


# Questions and labelled texts


def squad_seeds() -> list[Files]:
    one = synthetic_squad(4)
    return [{"train.json": json.dumps(content).encode()} for content in (one, synthetic_squad(4, unanswerable=True))]


def read_squad(folder: Path) -> object:
    path = folder / "train.json"
    impossible = b"is_impossible" in path.read_bytes()
    data = QuestionAnsweringData(
        train=str(path),
        unanswerable=impossible,
        sequence_length=32,
        stride=4,
        question_length=8,
        cache=str(folder / "cache"),
    )
    features = load_features(QuestionFile.read(data, "train"), tokenizer(), data)
    for row in range(min(FEW, len(features.lengths))):
        tokens, types, _ = features.row(row)
        assert len(tokens) == len(types) <= 32
    return len(features.lengths)


def labelled_seeds() -> list[Files]:
    lines = [{"text": "A lovely film", "pair": "yes", "label": "good"}, {"text": "dull", "pair": "no", "label": "bad"}]
    table = "text\tpair\tlabel\nA lovely film\tyes\t1\ndull\tno\t0\n"
    return [
        {"data.jsonl": "\n".join(map(json.dumps, lines)).encode()},
        {"data.tsv": table.encode()},
        {"data.jsonl": b'{"text": "1", "pair": "x", "label": 3}\n{"text": "2", "pair": "x", "label": -1}\n'},
    ]


def read_labelled(folder: Path) -> object:
    path = next(iter(sorted(folder.glob("data.*"))))
    kind: Any = path.suffix.removeprefix(".")
    data = LabelledTextData(source=kind, train=str(path), pair="pair", sequence_length=16, cache=str(folder / "cache"))
    rows = load_rows(LabelledFile.read(data, "train"), tokenizer(), data)
    for number in range(min(FEW, len(rows))):
        tokens, types = rows.row(number)
        assert len(tokens) == len(types) <= 16 and 0 <= rows.labels[number] < len(rows.classes)
    return len(rows), rows.classes


def pairs_seeds() -> list[Files]:
    lines = [{"source": "who is in Berlin", "target": "the capital"}, {"source": "where", "target": 3}]
    return [
        {"data.jsonl": "\n".join(map(json.dumps, lines)).encode()},
        {"data.tsv": b"source\ttarget\nwhere\tin Berlin\nwho is\tthe capital\n"},
        {"data.txt": "who is\nwhere\n中国\n".encode(), "target.txt": b"the capital\nin\r\nx\n"},
    ]


def read_pairs(folder: Path) -> object:
    path = next(iter(sorted(folder.glob("data.*"))), folder / "data.txt")
    kind: Any = {".txt": "text"}.get(path.suffix, path.suffix.removeprefix("."))
    files = (str(path), *([str(folder / "target.txt")] if kind == "text" else []))
    lengths = {"sequence_length": 16, "target_length": 8, "truncate": True}
    data = SequencePairsData(source=kind, train=files, cache=str(folder / "cache"), **lengths)
    pairs = load_pairs(PairsFile(data, "train"), tokenizer())
    for number in range(min(FEW, len(pairs))):
        assert 1 < len(pairs.source(number)) <= 16 and 1 < len(pairs.target(number)) <= 8
        assert pairs.target_text(number).strip()
    return len(pairs), pairs.describe()


# What is asked of a model


@cache
def predictors() -> dict[str, Predictor]:
    heads: dict[str, tuple[str, Any]] = {
        "ask.jsonl": ("question_answering", QuestionAnsweringData(sequence_length=32, stride=4, question_length=8)),
        "tell.jsonl": ("sequence_classification", LabelledTextData(pair="pair", sequence_length=16)),
        "fill.jsonl": ("masked_language_modeling", MaskedConfig(sequence_length=16)),
        "fill.txt": ("masked_language_modeling", MaskedConfig(sequence_length=16)),
    }
    found = {}
    for name, (task, data) in heads.items():
        shape: Any = {"layers": 1, "hidden": 8, "heads": 2, "vocab": tokenizer().vocab_size, "context": 32}
        model = build_model(BertConfig(head=task, dropout=0.0, **shape)).eval()
        initialize(model, 0)
        setup = PredictorSetup(model, tokenizer(), (), data, torch.device("cpu"), 2, scratch())
        found[name] = predictor_of(task, setup)
    return found


def asked_seeds() -> list[Files]:
    asked = [{"context": "Berlin is the capital of Germany.", "question": "Where?", "id": 7}, "Berlin is it - where"]
    told = [{"text": "Berlin", "pair": "Germany"}, {"text": "the", "pair": "is", "id": "x"}]
    return [
        {"ask.jsonl": "\n".join(map(json.dumps, asked)).encode()},
        {"tell.jsonl": "\n".join(map(json.dumps, told)).encode()},
        {"fill.jsonl": b'"the [MASK] is"\n{"text": "Berlin [MASK] of"}\n'},
        {"fill.txt": b"the [MASK] is\nBerlin [MASK]\n"},
    ]


def read_asked(folder: Path) -> object:
    (path,) = folder.iterdir()
    predictor = predictors()[path.name]
    given = read_inputs(predictor, str(path))
    found = predict(predictor, given[:FEW])
    return json.dumps([one.answers for one in found], allow_nan=False)


# Metrics


def metrics_seeds() -> list[Files]:
    times = {"timestamp": 1.5, "elapsedtime": 0.5, "datetime": "2026-01-01 12:00:00"}
    records: list[dict[str, Any]] = [
        {"type": "METADATA", "metric": "train.loss", "metadata": {"GOAL": "MINIMIZE", "STAGE": "TRAIN"}},
        {"type": "LOG", "step": [0, 1], "data": {"train.loss": 3.5, "train.grad_norm": float("nan")}},
        {"type": "LOG", "step": [0, 2], "data": {"train.loss": 3.25, "train.lr": 1e-3}},
        {"type": "LOG", "step": [], "data": {"summary.ips": 10.0}},
    ]
    ours = b"".join(encode_record({**times, **record}) for record in records)
    theirs = b'TCAPPDLL {"timestamp": "1.5", "type": "LOG", "step": [0, 1], "data": "{\'train.loss\': \'3.5\'}"}\n'
    return [{"metrics.jsonl": ours}, {"metrics.jsonl": theirs + b"DLLL " + ours}]


def read_records(folder: Path) -> object:
    path = folder / "metrics.jsonl"
    records = list(read_metrics(path))
    data = [record.get("data") for record in records if record["type"] == "LOG"]
    losses = [values.get("train.loss") for values in data if isinstance(values, dict)]  # in INFO lines it is text
    sink = JsonLinesSink(path, resume_step=1)
    sink.metadata("train.loss", goal="MINIMIZE")
    sink.log((0, 2), {"train.loss": 3.0})
    sink.close()
    assert len(list(read_metrics(path))) <= len(records) + 2
    return len(records), repr(losses)


# What a stopped `paddock generate --output` left

SETTINGS = {"source": "model", "seed": 1, "options": {"temperature": 0.0}}
COPIES = 2


def generated_seeds() -> list[Files]:
    rows = [{"index": row, "prompt": "é", "text": f"a text {row}", "logprobs": [-0.5, None]} for row in range(6)]
    lines = "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows).encode()
    about = json.dumps(SETTINGS).encode()
    return [{"out.jsonl.partial": part, "out.jsonl.partial.json": about} for part in (lines, lines[:-20])]


def read_generated(folder: Path) -> object:
    """What is gone on with are whole inputs, and what is added then can be read as far as those go."""
    records = Records(folder / "out.jsonl", SETTINGS, COPIES)
    kept = list(records.begin())
    assert len(kept) % COPIES == 0
    added = [{"text": "more"}] * COPIES
    records.add(added)
    records.finish()
    assert list(read_written(folder / "out.jsonl")) == kept + added
    return repr(kept)


# Parquet tables, where pyarrow is there


def table_seeds() -> list[Files]:
    """A plain table of two row groups, and one of a dictionary that is packed."""
    arrow, parquet = import_module("pyarrow"), import_module("pyarrow.parquet")
    texts = ["Berlin is it", None, "中国\tin\n", "a" * 100]
    found: list[Files] = []
    for values, named in ((arrow.array(texts), {}), (arrow.array(texts).dictionary_encode(), {"compression": "gzip"})):
        stream = BytesIO()
        parquet.write_table(arrow.table({"text": values, "id": [1, 2, 3, 4]}), stream, row_group_size=2, **named)
        found.append({"table.parquet": stream.getvalue()})
    return found


def read_parquet(folder: Path) -> object:
    """As preprocessing reads it, from the first row and from the middle; what pyarrow says of damage is told there."""
    path = str(folder / "table.parquet")
    check_table(path, ["text"], "--json-keys")
    try:
        return [[lines for lines, _ in read_table(path, ["text"], first, 1 << 10)] for first in (0, 3)]
    except (ValueError, OSError, *table_errors()) as error:
        raise DataError("the table is damaged", why=str(error)[:200]) from None


# The array cache

KEY = {"kind": "fuzz", "version": 1}


def built() -> Arrays:
    generator = np.random.default_rng(0)
    numbers = generator.integers(0, 2**40, (7, 3))
    return {"order": generator.integers(0, 100, 33, dtype=np.int32), "begins": numbers, "none": np.zeros(0, np.int64)}


def cache_of(folder: Path) -> ArrayCache:
    return ArrayCache((folder,), "corpus")


def cache_seeds() -> list[Files]:
    with tempfile.TemporaryDirectory(dir=scratch()) as place:
        cache_of(Path(place)).get(KEY, built)
        return [{name: content for name, content in files_in(Path(place)).items() if name.endswith(".arrays")}]


def read_cache(folder: Path) -> object:
    """A file that was damaged is found out, and built again: it always gives the same."""
    arrays = cache_of(folder).get(KEY, built)
    return {name: (str(array.dtype), array.shape, array.tobytes()) for name, array in arrays.items()}


def damage_header(rng: Random, data: bytes) -> bytes:
    """The line of JSON before the arrays, or any bytes."""
    if rng.random() < 0.5:
        return damage_bytes(rng, data)
    line, _, rest = data.partition(b"\n")
    return json_mutator(("<i8", "<f4", "|O", "|V8"))(rng, line.rstrip()).ljust(len(line))[: len(line)] + b"\n" + rest


# What language models are measured on


def measured_seeds() -> list[Files]:
    texts = ["The capital of Germany is Berlin", "Where?\n\nIn Germany! The capital is Berlin", "中国 的 首都 是 北京"]
    lines = "".join(json.dumps({"text": text, "domain": "News"}) + "\n" for text in texts)
    return [{"passages.jsonl": lines.encode()}, {"text.txt": "\n".join(texts).encode()}]


def read_measured(folder: Path) -> object:
    """Passages in every form, or a text."""
    if not (file := folder / "passages.jsonl").exists():
        text = load_text(TextData(path=str(folder / "text.txt"), cache=str(folder / "cache")), tokenizer())
        return text.tokens.tolist(), text.words, text.bytes, text.characters
    found = []
    for form in get_args(LambadaData.model_fields["form"].annotation):
        data = LambadaData(path=str(file), form=form, sequence_length=16, cache=str(folder / "cache"))
        examples = load_examples(data, tokenizer())
        found.append([examples.parts(number) for number in range(len(examples))])
        assert all(context and target for context, target in found[-1])
    return found


SQUAD_WORDS = ("data", "paragraphs", "context", "qas", "id", "question", "answers", "text", "answer_start", 0, -1)
JOURNAL_WORDS = ("form", "outputs", "job", "progress", "position", "counts", "skipped_bytes", "writers", "text", "line")

READERS = [
    Reader("indexed", index_seeds, read_index, fresh=True),
    Reader("json_lines", lines_seeds, read_lines, {".jsonl": lines_mutator(("text", "id"))}),
    Reader(
        "text_source",
        text_seeds,
        read_text_source,
        {".jsonl": lines_mutator(("text", "id")), ".txt": damage_text},
        fresh=True,
    ),
    Reader(
        "stopped_preprocess",
        stopped_seeds,
        read_stopped,
        {".json": json_mutator(JOURNAL_WORDS)},
        exact=True,
        fresh=True,
        share=0.5,
    ),
    Reader("squad", squad_seeds, read_squad, {".json": json_mutator(SQUAD_WORDS)}, fresh=True),
    Reader(
        "labelled_text",
        labelled_seeds,
        read_labelled,
        {".jsonl": lines_mutator(("text", "pair", "label")), ".tsv": damage_text},
        fresh=True,
    ),
    Reader(
        "pairs",
        pairs_seeds,
        read_pairs,
        {".jsonl": lines_mutator(("source", "target")), ".tsv": damage_text, ".txt": damage_text},
        fresh=True,
    ),
    Reader(
        "measured_text",
        measured_seeds,
        read_measured,
        {".jsonl": lines_mutator(("text", "domain")), ".txt": damage_text},
        fresh=True,
        share=0.5,
    ),
    Reader(
        "predict_input",
        asked_seeds,
        read_asked,
        {".jsonl": lines_mutator(("context", "question", "text", "pair", "id", "[MASK]")), ".txt": damage_text},
        share=0.5,
    ),
    Reader(
        "metrics",
        metrics_seeds,
        read_records,
        {".jsonl": lines_mutator(("type", "step", "data", "LOG", "METADATA", "metric", "metadata", "elapsedtime"))},
        fresh=True,
    ),
    Reader(
        "generated",
        generated_seeds,
        read_generated,
        {".partial": lines_mutator(("index", "prompt", "text", "logprobs")), ".json": json_mutator(("source", "seed"))},
        fresh=True,
        share=0.5,
    ),
    *([Reader("parquet", table_seeds, read_parquet, share=0.5)] if find_spec("pyarrow") else []),
    Reader("array_cache", cache_seeds, read_cache, {".arrays": damage_header}, exact=True, fresh=True),
]
