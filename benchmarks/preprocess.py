"""`paddock preprocess` beside Megatron-LM's script and beside a bare loop over the tokenizer, with two workers each.

The corpus is made from plain text files: paragraphs drawn at random, in which every tenth word is replaced, half of
the time by one that was never there before, so that nobody profits too much from having seen it all. Every setting
runs in processes of its own; rounds alternate, and the figure of a setting is its fastest round. Megatron-LM's speed
is the one it prints, without its start; ours is the whole command's. Since speed suffers from whoever else uses the
machine, the processor time is measured, too: of all processes of a command, less what it takes for one document.
Megatron-LM's checkout is an argument, as is a Python that can run it (with nltk and transformers); its files and ours
are compared, byte for byte. Run:

python benchmarks/preprocess.py --text *.txt --gpt2 FOLDER --megatron DIR [--megatron-python P] [--megabytes 50]

FOLDER has GPT-2's vocab.json and merges.txt.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import re
import resource
import shutil
import subprocess
import sys
import tempfile
import time
from array import array
from collections.abc import Callable
from pathlib import Path
from typing import Any

from report import keep

WORKERS = 2
BATCH = 1000
PLAIN = "plain.json"
"""A tokenizer that cannot be taken word by word: GPT-2's behind a normalizer."""


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--text", type=Path, nargs="+", required=True)
    parser.add_argument("--gpt2", type=Path, required=True)
    parser.add_argument("--megatron", type=Path)
    parser.add_argument("--megatron-python", default=sys.executable)
    parser.add_argument("--megabytes", type=float, default=50)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--bare", nargs=2, help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.bare:
        print(json.dumps(bare_loop(*arguments.bare)))
        return
    with tempfile.TemporaryDirectory() as folder:
        keep(__file__, Bench(arguments, Path(folder)).run())


class Bench:
    """The files of one benchmark, and the settings that work on them."""

    def __init__(self, arguments: argparse.Namespace, folder: Path) -> None:
        self._arguments, self._folder = arguments, folder
        self._corpus = folder / "corpus.jsonl"
        write_corpus(self._corpus, arguments.text, arguments.megabytes)
        self._one_document = folder / "one.jsonl"
        write_corpus(self._one_document, arguments.text, 0)
        (folder / "gpt2").mkdir()
        for name in ("vocab.json", "merges.txt"):
            shutil.copyfile(arguments.gpt2 / name, folder / "gpt2" / name)
        (folder / "gpt2" / "config.json").write_text('{"model_type": "gpt2"}')  # for transformers
        make_plain_tokenizer(folder / "gpt2", folder / PLAIN)

    def run(self) -> list[tuple[str, float, str]]:
        settings: dict[str, Callable[[Path], float]] = {
            "bare loop": lambda corpus: self._bare("gpt2", corpus),
            "paddock": self._paddock,
            "bare loop, no words": lambda corpus: self._bare(PLAIN, corpus),
            "paddock, no words": self._paddock_plain,
        }
        if self._arguments.megatron:
            settings["megatron"] = self._megatron
        best, least = dict.fromkeys(settings, 0.0), dict.fromkeys(settings, float("inf"))
        for number in range(self._arguments.rounds):
            for name, measure in settings.items():
                speed, seconds = self._measure(measure)
                best[name], least[name] = max(best[name], speed), min(least[name], seconds)
                print(f"round {number + 1} {name}: {speed:.2f} MB/s, {seconds:.1f} s of processors", file=sys.stderr)
        rows = [(f"{name}, MB/s", speed, "") for name, speed in best.items()]
        rows += [(f"{name}, processor s", seconds, "") for name, seconds in least.items()]
        rows.append(("paddock ÷ bare loop", best["paddock"] / best["bare loop"], "≥ 0.85"))
        plain = best["paddock, no words"] / best["bare loop, no words"]
        rows.append(("paddock ÷ bare loop, no words", plain, "≥ 0.85"))
        if "megatron" in best:
            self._compare()
            rows.append(("paddock ÷ megatron", best["paddock"] / best["megatron"], "≥ 2"))
            rows.append(("processor s, megatron ÷ paddock", least["megatron"] / least["paddock"], ""))
        return rows + self._memory()

    def _measure(self, measure: Callable[[Path], float]) -> tuple[float, float]:
        """Megabytes a second, and the processor time of everything but the start."""
        start = processor_time()
        measure(self._one_document)
        small = processor_time() - start
        speed = measure(self._corpus)
        return speed, processor_time() - start - 2 * small

    def _paddock(self, corpus: Path, peak: list[int] | None = None) -> float:
        files = ["--vocab-file", self._folder / "gpt2" / "vocab.json", "--merge-file"]
        return self._command("GPT2BPETokenizer", [*files, self._folder / "gpt2" / "merges.txt"], corpus, peak)

    def _paddock_plain(self, corpus: Path) -> float:
        return self._command("HuggingFaceTokenizer", ["--tokenizer-model", self._folder / PLAIN], corpus)

    def _command(self, kind: str, flags: list[str | Path], corpus: Path, peak: list[int] | None = None) -> float:
        command = [sys.executable, "-m", "paddock", "preprocess", "--input", corpus, "--tokenizer-type", kind, *flags]
        command += ["--output-prefix", self._folder / "ours", "--append-eod", "--workers", str(WORKERS), "--overwrite"]
        started = time.perf_counter()
        with subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True) as process:
            while process.poll() is None:
                if peak is not None:
                    peak.append(resident_memory(process.pid))
                time.sleep(0.02)
            seconds = time.perf_counter() - started
            assert process.returncode == 0, process.stderr and process.stderr.read()
        return corpus.stat().st_size / seconds / 1e6

    def _bare(self, tokenizer: str, corpus: Path) -> float:
        command = [sys.executable, __file__, "--text", "-", "--gpt2", "-"]
        command += ["--bare", str(self._folder / tokenizer), str(corpus)]
        environment = {**os.environ, "RAYON_NUM_THREADS": str(WORKERS), "TOKENIZERS_PARALLELISM": "true"}
        output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True, env=environment).stdout
        return float(json.loads(output))

    def _megatron(self, corpus: Path) -> float:
        script = self._arguments.megatron.absolute() / "tools" / "preprocess_data.py"
        command = [self._arguments.megatron_python, script, "--input", corpus, "--output-prefix", "theirs"]
        command += ["--vocab-file", "gpt2/vocab.json", "--merge-file", "gpt2/merges.txt", "--append-eod"]
        command += ["--tokenizer-type", "GPT2BPETokenizer", "--workers", str(WORKERS)]
        command += ["--log-interval", "1" if corpus == self._one_document else "500"]
        done = subprocess.run(command, cwd=self._folder, capture_output=True, text=True)
        speeds = re.findall(r"([\d.]+) MB/s", done.stderr)
        assert done.returncode == 0 and speeds, done.stderr
        return float(speeds[-1]) * 1024**2 / 1e6

    def _compare(self) -> None:
        self._paddock(self._corpus)
        for suffix in (".bin", ".idx"):
            ours, theirs = (self._folder / f"{name}_text_document{suffix}" for name in ("ours", "theirs"))
            assert ours.read_bytes() == theirs.read_bytes(), f"{suffix} differs from Megatron-LM's"

    def _memory(self) -> list[tuple[str, float, str]]:
        large = self._folder / "large.jsonl"
        write_corpus(large, self._arguments.text, 10 * self._arguments.megabytes, seed=1)
        rows = []
        for times, corpus in ((1, self._corpus), (10, large)):
            peak: list[int] = []
            speed = self._paddock(corpus, peak)
            rows.append((f"peak memory at {times} ×, MB", max(peak) / 1e6, "< 1074"))
            print(f"{times} ×: {speed:.2f} MB/s, {max(peak) / 1e6:.0f} MB", file=sys.stderr, flush=True)
        return [*rows, ("memory at 10 × ÷ at 1 ×", rows[1][1] / rows[0][1], "about 1")]


def bare_loop(tokenizer: str, corpus: str) -> float:
    """Megabytes of JSON lines a second; reading and parsing them is not counted."""
    engine = load_engine(Path(tokenizer))
    texts = [json.loads(line)["text"] for line in open(corpus)]  # noqa: SIM115
    tokens = array("H")
    started = time.perf_counter()
    for first in range(0, len(texts), BATCH):
        for encoding in engine.encode_batch(texts[first : first + BATCH], add_special_tokens=False):
            tokens.extend(encoding.ids)
    return Path(corpus).stat().st_size / (time.perf_counter() - started) / 1e6


def load_engine(path: Path) -> Any:
    from tokenizers import Tokenizer, models, pre_tokenizers

    if path.is_file():
        return Tokenizer.from_file(str(path))
    engine = Tokenizer(models.BPE.from_file(str(path / "vocab.json"), str(path / "merges.txt")))
    engine.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    return engine


def make_plain_tokenizer(source: Path, destination: Path) -> None:
    from tokenizers import normalizers

    engine = load_engine(source)
    engine.normalizer = normalizers.NFC()
    engine.add_special_tokens(["<|endoftext|>"])
    engine.save(str(destination))


def write_corpus(path: Path, sources: list[Path], megabytes: float, seed: int = 0) -> None:
    """JSON lines of one to eight paragraphs, varied."""
    rng = random.Random(seed)
    paragraphs = [part for source in sources for part in re.split(r"\n\s*\n|\n", source.read_text()) if part.strip()]
    words = [word for paragraph in paragraphs for word in paragraph.split()]
    written = 0
    with open(path, "w") as stream:
        while written <= megabytes * 1e6:
            text = "\n".join(vary(part, words, rng) for part in rng.choices(paragraphs, k=rng.randint(1, 8)))
            written += stream.write(json.dumps({"text": text, "id": written}) + "\n")


def vary(paragraph: str, words: list[str], rng: random.Random) -> str:
    parts = paragraph.split(" ")
    for _ in range(max(1, len(parts) // 10)):
        new = rng.random() < 0.5
        other = rng.choice(words)
        parts[rng.randrange(len(parts))] = (
            other[:3] + rng.choice(words)[-3:] + str(rng.randrange(1000)) if new else other
        )
    return " ".join(parts)


def processor_time() -> float:
    """Seconds that the processes we have waited for, and those they have waited for, have computed."""
    usage = resource.getrusage(resource.RUSAGE_CHILDREN)
    return usage.ru_utime + usage.ru_stime


def resident_memory(root: int) -> int:
    """Bytes that a process and its descendants have in memory; what they share counts for each."""
    children: dict[int, list[int]] = {}
    resident: dict[int, int] = {}
    for entry in Path("/proc").glob("[0-9]*"):
        try:
            fields = (entry / "stat").read_text().rpartition(")")[2].split()
        except OSError:
            continue
        children.setdefault(int(fields[1]), []).append(int(entry.name))
        resident[int(entry.name)] = int(fields[21]) * os.sysconf("SC_PAGE_SIZE")
    total, family = 0, [root]
    while family:
        process = family.pop()
        total += resident.get(process, 0)
        family += children.get(process, [])
    return total


if __name__ == "__main__":
    main()
