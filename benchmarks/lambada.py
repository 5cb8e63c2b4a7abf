"""LAMBADA by `paddock evaluate --lambada`, beside the usual loop over transformers' model: a passage at a time.

Both have the same folder of weights (a GPT-2 124M with random ones, unless told otherwise) and the same file, on all
cores, and find the same: as many last words, and as likely. Passages are tokens before either clock starts, and
neither counts how long it takes to start. They take turns, and the figure of each is its middle round. Run:

python benchmarks/lambada.py --lambada lambada_test.jsonl [--model FOLDER] [--limit 500] [--rounds 3]
"""

from __future__ import annotations

import argparse
import json
import math
import statistics
import subprocess
import sys
import tempfile
import time
from itertools import islice
from pathlib import Path

from report import Row, keep

Found = dict[str, float]
"""Passages a second, how many last words were found, and the loss: what each passage's last word costs in the mean."""
RECIPE, TOKENS = "gpt2/117m", 8000


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--lambada", type=Path, required=True, help='a JSON object {"text": …} a line')
    parser.add_argument("--model", type=Path, help="a Hugging Face folder of a GPT-2 with its tokenizer")
    parser.add_argument("--limit", type=int, help="so many of the first passages")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--child", action="store_true", help=argparse.SUPPRESS)
    arguments = parser.parse_args()
    if arguments.child:
        print(json.dumps(theirs(arguments.model, arguments.lambada)))
        return
    with tempfile.TemporaryDirectory() as scratch:
        passages = Path(scratch) / "passages.jsonl"
        with open(arguments.lambada, encoding="utf-8") as stream:
            passages.write_text("".join(islice(stream, arguments.limit)), encoding="utf-8")
        model = arguments.model or make_model(Path(scratch) / "model")
        rounds = [one_round(model, passages, number) for number in range(arguments.rounds)]
    keep(__file__, rows(rounds, "random weights" if arguments.model is None else "given weights"))


def one_round(model: Path, passages: Path, number: int) -> tuple[Found, Found]:
    """Ours and theirs, each in a process of its own."""
    verb = [sys.executable, "-m", "paddock", "evaluate", str(model), "--lambada", str(passages), "--json"]
    told = json.loads(subprocess.run(verb, check=True, stdout=subprocess.PIPE, text=True).stdout)
    right = told["val.lambada_accuracy"] * told["val.samples"]
    ours = {"speed": told["val.ips"], "right": round(right), "loss": told["val.loss"]}
    loop = [sys.executable, __file__, "--child", "--model", str(model), "--lambada", str(passages)]
    other: Found = json.loads(subprocess.run(loop, check=True, stdout=subprocess.PIPE, text=True).stdout)
    print(f"round {number + 1}: paddock {ours}, transformers {other}", file=sys.stderr, flush=True)
    assert ours["right"] == other["right"], "they find other words"
    assert math.isclose(ours["loss"], other["loss"], rel_tol=1e-4), "they find them otherwise likely"
    return ours, other


def rows(rounds: list[tuple[Found, Found]], weights: str) -> list[Row]:
    ratio = statistics.median(ours["speed"] / other["speed"] for ours, other in rounds)
    work = f"LAMBADA, GPT-2, {weights}"
    return [
        (f"{work}: paddock, passages/s", statistics.median(ours["speed"] for ours, _ in rounds), ""),
        (f"{work}: transformers one by one, passages/s", statistics.median(other["speed"] for _, other in rounds), ""),
        (f"{work}: ratio", ratio, "≥ 3"),
        (f"{work}: number correct, of both", rounds[0][0]["right"], ""),
    ]


def make_model(folder: Path) -> Path:
    """A GPT-2 124M with random weights, and a tokenizer that has learned from the Python language reference."""
    import torch
    from tokenizers import ByteLevelBPETokenizer
    from transformers import PreTrainedTokenizerFast

    from paddock.benchmarking.peers import PEERS
    from paddock.config.load import load_recipe
    from paddock.data.language.embedded import embedded_documents

    torch.manual_seed(0)
    PEERS["hf"].build(load_recipe(RECIPE).model).model.eval().save_pretrained(folder)
    learned = ByteLevelBPETokenizer()
    learned.train_from_iterator(embedded_documents(), vocab_size=TOKENS, special_tokens=["<|endoftext|>"])
    learned.save(str(folder / "tokenizer.json"))
    fast = PreTrainedTokenizerFast(tokenizer_file=str(folder / "tokenizer.json"), eos_token="<|endoftext|>")  # noqa: S106
    fast.save_pretrained(folder)
    return folder


def theirs(model: Path, passages: Path) -> Found:
    """The last word is found if the likeliest token is the right one in each of its places."""
    import torch
    from transformers import AutoModelForCausalLM, AutoTokenizer

    network, tokenizer = AutoModelForCausalLM.from_pretrained(model).eval(), AutoTokenizer.from_pretrained(model)
    examples: list[tuple[torch.Tensor, int]] = []
    with open(passages, encoding="utf-8") as stream:
        for line in stream:
            context, word = json.loads(line)["text"].rsplit(None, 1)
            before = tokenizer(context).input_ids
            target = tokenizer(f"{context} {word}").input_ids[len(before) :]
            whole = [*before, *target][-network.config.n_positions - 1 :]
            examples.append((torch.tensor([whole]), len(target)))
    right, loss = 0, 0.0
    with torch.inference_mode():
        network(examples[0][0][:, :-1])
        started = time.perf_counter()
        for tokens, count in examples:
            logits = network(tokens[:, :-1]).logits[0, -count:]
            wanted = tokens[0, -count:]
            right += bool((logits.argmax(-1) == wanted).all())
            loss -= logits.log_softmax(-1).gather(-1, wanted.unsqueeze(-1)).sum().item()
        seconds = time.perf_counter() - started
    return {"speed": len(examples) / seconds, "right": float(right), "loss": loss / len(examples)}


if __name__ == "__main__":
    main()
