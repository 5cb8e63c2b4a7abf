"""What a small pretrained BERT learns from SQuAD in one epoch, beside Hugging Face's model with the same settings.

Both sides run at once, half of the cores each: their scores are compared, not their speed. Each makes its own rows,
draws its own order and its own head; Hugging Face's side follows its question-answering example. Rows go through the
models one by one, so that nothing is filled up. Scores are over the first questions of the dev set. Run:
python benchmarks/squad_learning.py --weights FOLDER --squad FOLDER
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

from report import keep

EPOCHS, BATCH, RATE, WARMUP, DECAY, CLIP = 1, 12, 1e-4, 0.1, 0.01, 1.0
LENGTH, STRIDE, ANSWER, N_BEST = 384, 128, 30, 20


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--weights", type=Path, required=True, help="a BERT encoder in Hugging Face's form")
    parser.add_argument("--squad", type=Path, required=True, help="a folder with train-v1.1.json and dev-v1.1.json")
    parser.add_argument("--questions", type=int, default=2000, help="of the dev set, from its beginning")
    parser.add_argument("--training-questions", type=int, default=None, help="for a short trial")
    parser.add_argument("--seed", type=int, default=1234)
    parser.add_argument("--child", choices=list(CHILDREN), help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(CHILDREN[arguments.child](arguments.weights, arguments.squad, arguments.seed)))
        return
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        for file, count in (("train-v1.1.json", arguments.training_questions), ("dev-v1.1.json", arguments.questions)):
            content = first_questions(json.loads((arguments.squad / file).read_text(encoding="utf-8")), count)
            (folder / file).write_text(json.dumps(content), encoding="utf-8")
        running = {child: start(child, arguments.weights, folder, arguments.seed) for child in CHILDREN}
        outputs = {child: process.communicate()[0] for child, process in running.items()}
    found: dict[str, dict[str, float]] = {child: json.loads(text.splitlines()[-1]) for child, text in outputs.items()}
    ours, theirs = found["paddock"], found["huggingface"]
    rows = [(f"{child}, {measure}", value, "") for child, values in found.items() for measure, value in values.items()]
    keep(__file__, [*rows, ("F1, ours − theirs", ours["f1"] - theirs["f1"], "≥ -1")])


def start(child: str, weights: Path, squad: Path, seed: int) -> subprocess.Popen[str]:
    command = [sys.executable, __file__, "--child", child, "--weights", str(weights), "--squad", str(squad)]
    command += ["--seed", str(seed)]
    threads = str(max(1, (os.cpu_count() or 1) // len(CHILDREN)))
    return subprocess.Popen(command, stdout=subprocess.PIPE, text=True, env={**os.environ, "OMP_NUM_THREADS": threads})


def first_questions(content: dict[str, Any], count: int | None) -> dict[str, Any]:
    """A SQuAD file's first `count` questions."""
    if count is None:
        return content
    articles: list[Any] = []
    for article in content["data"]:
        paragraphs = []
        for paragraph in article["paragraphs"]:
            taken = paragraph["qas"][:count]
            count -= len(taken)
            if taken:
                paragraphs.append({**paragraph, "qas": taken})
        articles.append({**article, "paragraphs": paragraphs})
    return {**content, "data": articles}


def paddock(weights: Path, squad: Path, seed: int) -> dict[str, float]:
    shape = json.loads((weights / "config.json").read_text())
    flags = {
        "model.layers": shape["num_hidden_layers"],
        "model.hidden": shape["hidden_size"],
        "model.heads": shape["num_attention_heads"],
        "tokenizer.vocab": weights / "vocab.txt",
        "checkpoint.load": weights,
        "data.path": squad,
        "data.cache": squad / "cache",
        "data.padding": "longest",
        "data.sequence-length": LENGTH,
        "data.stride": STRIDE,
        "data.answer-length": ANSWER,
        "data.n-best": N_BEST,
        "batch.micro": 1,
        "batch.global": BATCH,
        "optimizer.lr": RATE,
        "optimizer.weight-decay": DECAY,
        "optimizer.clip": CLIP,
        "schedule.warmup": WARMUP,
        "train.epochs": EPOCHS,
        "train.seed": seed,
        "evaluate.every": None,
        "checkpoint.every": None,
        "run-dir": squad / "run",
    }
    begun = time.perf_counter()
    words = [word for flag, value in flags.items() for word in (f"--{flag}", str(value))]
    subprocess.run(
        [sys.executable, "-m", "paddock", "train", "bert/base-uncased-squad", *words], check=True, stdout=sys.stderr
    )
    seconds = time.perf_counter() - begun
    command = [sys.executable, "-m", "paddock", "evaluate", str(squad / "run"), "--json"]
    output = subprocess.run(command, check=True, stdout=subprocess.PIPE, text=True).stdout
    scores = json.loads(output)
    return {"exact_match": scores["val.exact_match"], "f1": scores["val.f1"], "training seconds": seconds}


def huggingface(weights: Path, squad: Path, seed: int) -> dict[str, float]:
    import torch
    from transformers import BertForQuestionAnswering, BertTokenizerFast, get_linear_schedule_with_warmup

    from paddock.tasks.answers import score_answers

    torch.manual_seed(seed)
    tokenizer = BertTokenizerFast(str(weights / "vocab.txt"), do_lower_case=True)
    model = BertForQuestionAnswering.from_pretrained(weights).train()
    features = rows_of(tokenizer, questions_of(squad / "train-v1.1.json"))
    undecayed = ("bias", "LayerNorm.weight")
    groups = [
        {"params": [p for n, p in model.named_parameters() if not n.endswith(undecayed)], "weight_decay": DECAY},
        {"params": [p for n, p in model.named_parameters() if n.endswith(undecayed)], "weight_decay": 0.0},
    ]
    optimizer = torch.optim.AdamW(groups, lr=RATE, eps=1e-8, fused=True)
    steps = EPOCHS * (len(features) // BATCH)
    schedule = get_linear_schedule_with_warmup(optimizer, int(WARMUP * steps), steps)
    begun = time.perf_counter()
    order = torch.cat([torch.randperm(len(features)) for _ in range(EPOCHS)]).tolist()
    for step in range(steps):
        rows = [features[place] for place in order[step * BATCH : (step + 1) * BATCH]]
        total = 0.0
        for row in rows:
            first, last = torch.tensor([row["answer"]]).T
            loss = model(**padded(tokenizer, [row]), start_positions=first, end_positions=last).loss / BATCH
            loss.backward()
            total += loss.item()
        torch.nn.utils.clip_grad_norm_(model.parameters(), CLIP)
        optimizer.step()
        schedule.step()
        optimizer.zero_grad()
        if step % 50 == 0:
            passed = time.perf_counter() - begun
            print(f"huggingface: step {step}/{steps}, loss {total:.3f}, {passed:.0f} s", file=sys.stderr)
    seconds = time.perf_counter() - begun
    questions = questions_of(squad / "dev-v1.1.json")
    said = answers_of(model.eval(), tokenizer, questions)
    pairs = [(answer, question["answers"]) for answer, question in zip(said, questions, strict=True)]
    return {**score_answers(pairs, unanswerable=False), "training seconds": seconds}


def questions_of(file: Path) -> list[dict[str, Any]]:
    return [
        {
            "context": paragraph["context"],
            "question": entry["question"].lstrip(),
            "answers": [answer["text"] for answer in entry["answers"]],
            "start": entry["answers"][0]["answer_start"],
        }
        for article in json.loads(file.read_text(encoding="utf-8"))["data"]
        for paragraph in article["paragraphs"]
        for entry in paragraph["qas"]
    ]


def rows_of(tokenizer: Any, questions: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Windows with the tokens of the answer, or with the first token where they do not hold all of it."""
    encoded = tokenizer(
        [question["question"] for question in questions],
        [question["context"] for question in questions],
        truncation="only_second",
        max_length=LENGTH,
        stride=STRIDE,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    found = []
    for place, number in enumerate(encoded["overflow_to_sample_mapping"]):
        sources, offsets = encoded.sequence_ids(place), encoded["offset_mapping"][place]
        begin = questions[number]["start"]
        end = begin + len(questions[number]["answers"][0])
        inside = [token for token, source in enumerate(sources) if source == 1]
        answer = (0, 0)
        if inside and offsets[inside[0]][0] <= begin and offsets[inside[-1]][1] >= end:
            first = max(token for token in inside if offsets[token][0] <= begin)
            last = min(token for token in inside if offsets[token][1] >= end)
            answer = (first, last)
        row = {key: encoded[key][place] for key in ("input_ids", "token_type_ids", "attention_mask")}
        found.append({"row": row, "number": number, "offsets": offsets, "inside": inside, "answer": answer})
    return found


def padded(tokenizer: Any, rows: list[dict[str, Any]]) -> dict[str, Any]:
    """Filled up to the longest."""
    filled: dict[str, Any] = tokenizer.pad([row["row"] for row in rows], return_tensors="pt")
    return filled


def answers_of(model: Any, tokenizer: Any, questions: list[dict[str, Any]]) -> list[str]:
    """The best span over the n-best starts and ends of all windows of a question."""
    import torch

    best: dict[int, tuple[float, str]] = {}
    rows = sorted(rows_of(tokenizer, questions), key=lambda row: len(row["row"]["input_ids"]))
    for place in range(0, len(rows), 16):
        some = rows[place : place + 16]
        with torch.inference_mode():
            outputs = model(**padded(tokenizer, some))
        for row, starts, ends in zip(some, outputs.start_logits, outputs.end_logits, strict=True):
            allowed, context = set(row["inside"]), questions[row["number"]]["context"]
            for first in starts.topk(min(N_BEST, len(starts))).indices.tolist():
                for last in ends.topk(min(N_BEST, len(ends))).indices.tolist():
                    if first in allowed and last in allowed and first <= last < first + ANSWER:
                        score = float(starts[first] + ends[last])
                        if row["number"] not in best or score > best[row["number"]][0]:
                            text = context[row["offsets"][first][0] : row["offsets"][last][1]]
                            best[row["number"]] = (score, text)
    return [best.get(number, (0.0, ""))[1] for number in range(len(questions))]


CHILDREN = {"paddock": paddock, "huggingface": huggingface}

if __name__ == "__main__":
    main()
