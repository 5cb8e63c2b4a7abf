"""Keys and values in slots, a run of memory for each sequence, beside pages: what each holds, and what it costs to
gather pages for attention on a CPU. GPT-2 124M, float32; 64 prompts of 8 to 512 tokens, 64 new ones, 32 at once, and
eight prompts of 32 tokens, 128 new ones.

Held: what is set aside (slots: the longest prompt and its new tokens for each; pages: as many as the sequences of that
moment have begun) beside what tokens are there, over all passes of the generation loop, which runs without products.
Attention: of one token of every row, in twelve layers, at the lengths of a pass in the middle; slots are handed to
torch's kernel as they lie, pages are copied one behind the other before, as long as the longest row. Both take turns,
and the figure of each is its middle turn. Run:

python benchmarks/slots_and_pages.py [--turns 20]
"""

from __future__ import annotations

import argparse
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from generation import BATCH, MIXED, WORKS, options
from report import Row, keep
from torch.nn import functional as F

from paddock.config.load import load_recipe
from paddock.devices import select
from paddock.inference.generation.decoder import Decoder, Pass
from paddock.inference.generation.generate import Limits, room_for, write
from paddock.inference.generation.generator import Generator
from paddock.models.layers.cache import KeyValueCache
from paddock.models.model import Model
from paddock.models.registry import build_model

PAGES = (16, 64)
"""Tokens in a page."""
WORKLOADS = (MIXED, "GPT-2 124M, 8")


class WithoutProducts(Decoder):
    """A model that always says the same, and how long each slot's text is in every pass."""

    def __init__(self, model: Model, room: Any) -> None:
        super().__init__(model, room)
        self.lengths: list[list[int]] = []
        self.scores = torch.zeros(1, model.config.vocabulary())

    def compute(self, work: Pass) -> torch.Tensor:
        (cache,) = self._caches
        cache.add([len(tokens) for tokens in work.tokens], work.first)
        self.lengths.append([length for length in cache.lengths if length])
        return self.scores.expand(len(work.tokens), -1)


def held(work: str, model: Model) -> tuple[list[Row], list[int]]:
    """Memory of a workload, and the lengths of the pass in the middle."""
    todo = WORKS[work]
    prompts, wanted = todo.tokens(), options(todo)
    room = room_for(model, prompts, wanted, Limits(BATCH))
    token = KeyValueCache(model, 1, 1).num_bytes
    decoder = WithoutProducts(model, room)
    write(Generator(decoder), prompts, wanted)
    used = [sum(lengths) for lengths in decoder.lengths]
    rows: list[Row] = [
        (f"{work}: slots, set aside, MB", room.num_bytes(model) / 1e6, ""),
        (f"{work}: tokens that are there, at most, MB", max(used) * token / 1e6, ""),
        (f"{work}: tokens that are there, in the mean, MB", statistics.mean(used) * token / 1e6, ""),
    ]
    for page in PAGES:
        most = max(sum(-(-length // page) * page for length in lengths) for lengths in decoder.lengths)
        rows.append((f"{work}: pages of {page}, at most, MB", most * token / 1e6, ""))
    return rows, decoder.lengths[len(decoder.lengths) // 2]


def attention(work: str, model: Model, lengths: Sequence[int], turns: int) -> list[Row]:
    """Seconds of a token's attention in all layers, from slots and from pages."""
    config: Any = model.config
    shape = (config.heads, config.hidden // config.heads)
    query = torch.rand(len(lengths), shape[0], 1, shape[1])
    longest = max(lengths)
    mask = (torch.arange(longest) < torch.tensor(lengths).unsqueeze(1))[:, None, None]
    mask_or_none = None if len(set(lengths)) == 1 else mask
    slots = [torch.rand(2, len(lengths), shape[0], longest + 64, shape[1]) for _ in range(config.layers)]

    def from_slots() -> None:
        for stored in slots:
            keys, values = stored[:, :, :, :longest]
            F.scaled_dot_product_attention(query, keys, values, attn_mask=mask_or_none)

    ways: dict[str, Callable[[], None]] = {"slots": from_slots}
    for page in PAGES:
        ways[f"pages of {page}"] = paged(query, mask_or_none, lengths, page, config.layers)
    seconds: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(turns + 2):
        for name, way in ways.items():
            started = time.perf_counter()
            way()
            seconds[name].append(time.perf_counter() - started)
    middle = {name: statistics.median(found[2:]) for name, found in seconds.items()}
    rows: list[Row] = [(f"{work}: attention of a token, {name}, ms", found * 1e3, "") for name, found in middle.items()]
    others = [name for name in middle if name != "slots"]
    return [*rows, *((f"{work}: attention, {name} ÷ slots", middle[name] / middle["slots"], "") for name in others)]


def paged(
    query: torch.Tensor, mask: torch.Tensor | None, lengths: Sequence[int], page: int, layers: int
) -> Callable[[], None]:
    """Attention to pages that lie anywhere; a page has its tokens side by side, so that one copy brings it."""
    rows, heads, _, size = query.shape
    longest, each = max(lengths), -(-max(lengths) // page)
    counts = [-(-length // page) for length in lengths]
    order = torch.randperm(sum(counts)).split(counts)
    table = torch.zeros(rows, each, dtype=torch.long)  # a row that has fewer looks at the first one, behind its mask
    for row, own in enumerate(order):
        table[row, : len(own)] = own
    pools = [torch.rand(2, sum(counts), page * heads * size) for _ in range(layers)]

    def attend() -> None:
        for pool in pools:
            found = pool.index_select(1, table.flatten()).view(2, rows, each * page, heads, size)
            keys, values = found[:, :, :longest].transpose(2, 3)
            F.scaled_dot_product_attention(query, keys, values, attn_mask=mask)

    return attend


@torch.inference_mode()
def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--turns", type=int, default=20)
    arguments = parser.parse_args()
    model = build_model(load_recipe("gpt2/117m").model).eval()
    select("cpu").prepare()
    rows: list[Row] = []
    for work in WORKLOADS:
        found, lengths = held(work, model)
        rows += [*found, *attention(work, model, lengths, arguments.turns)]
    keep(__file__, rows)


if __name__ == "__main__":
    main()
