"""The flags of the systems that users come from, as aliases of recipe fields. One table; `--help` prints it.

An alias is translated into Paddock's own flags before anything is parsed, so it means exactly what they mean.
"""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterable
from dataclasses import dataclass

from paddock.config.recipe import Recipe
from paddock.errors import ConfigError, UserError, bad_value


@dataclass(frozen=True)
class Alias:
    """`flags` become what `expand` makes of their value; `means` is what the help shows."""

    flags: tuple[str, ...]
    means: str
    expand: Callable[[str], list[str]]
    takes_value: bool = True
    note: str = ""


def _rename(flags: str, field: str, convert: Callable[[str], str] = str) -> Alias:
    return Alias(tuple(flags.split()), f"--{field}", lambda value: [f"--{field}", convert(value)])


def _switch(flags: str, *expansion: str) -> Alias:
    return Alias(tuple(flags.split()), " ".join(expansion), lambda _: list(expansion), takes_value=False)


def _no_meaning(flags: str, note: str, takes_value: bool = False) -> Alias:
    return Alias(tuple(flags.split()), f"({note})", lambda _: [], takes_value, note)


def _none_if_zero(value: str) -> str:
    return "None" if float(value) == 0 else value


VIRTUAL_STAGE = "--num-layers-per-virtual-pipeline-stage"

COMMON = [
    _rename("--steps", "train.steps"),
    _rename("--seed", "train.seed"),
    _rename("--device", "train.device"),
]

MEGATRON = [
    _rename("--num-layers", "model.layers"),
    _rename("--hidden-size", "model.hidden"),
    _rename("--num-attention-heads", "model.heads"),
    _rename("--ffn-hidden-size", "model.feed-forward"),
    _rename("--vocab-size", "model.vocab"),
    Alias(
        ("--seq-length",),
        "--data.sequence-length and --model.context",
        lambda value: ["--data.sequence-length", value, "--model.context", value],
    ),
    _rename("--attention-dropout", "model.attention-dropout"),
    _rename("--hidden-dropout", "model.dropout"),
    _rename("--init-method-std", "model.init-std"),
    _rename("--weight-decay --wd", "optimizer.weight-decay"),
    _rename("--clip-grad", "optimizer.clip", _none_if_zero),
    _rename("--adam-eps", "optimizer.eps"),
    Alias(("--adam-beta1",), "the first of --optimizer.betas", lambda value: ["--adam-beta1", value]),
    Alias(("--adam-beta2",), "the second of --optimizer.betas", lambda value: ["--adam-beta2", value]),
    _rename("--optimizer", "optimizer.name"),
    _rename("--learning-rate --lr", "optimizer.lr"),
    _rename("--min-lr", "schedule.min-lr"),
    _rename("--lr-decay-style", "schedule.name"),
    _rename("--lr-decay-iters", "schedule.decay-steps"),
    _rename("--lr-warmup-fraction --lr-warmup-iters", "schedule.warmup"),
    _rename("--micro-batch-size", "batch.micro"),
    _rename("--global-batch-size", "batch.global"),
    _rename("--num-accumulation-steps", "batch.accumulation"),
    _rename("--train-iters", "train.steps"),
    Alias(
        ("--train-samples",),
        "--train.samples",
        lambda value: ["--train.samples", value, "--train.steps", "None"],
    ),
    _switch("--checkpoint-activations", "--parallel.recompute", "full"),
    _switch("--fp16", "--precision.compute", "float16"),
    _switch("--bf16", "--precision.compute", "bfloat16"),
    _rename("--loss-scale", "precision.loss-scale"),
    _rename("--initial-loss-scale", "precision.initial-scale"),
    _rename("--loss-scale-window", "precision.scale-window", lambda value: str(int(float(value)))),
    _rename("--tensor-model-parallel-size", "parallel.tensor"),
    _rename("--pipeline-model-parallel-size", "parallel.pipeline"),
    Alias(
        (VIRTUAL_STAGE,),
        "--parallel.schedule interleaved, with --parallel.stages of that many layers",
        lambda value: [VIRTUAL_STAGE, value],
    ),
    _rename("--num-gpus-per-node", "nproc-per-node"),
    _rename("--num-nodes", "nnodes"),
    Alias(
        ("--node-ips",),
        "--node-rank and --master-addr, when there are several nodes",
        lambda value: ["--node-ips", value],
    ),
    _rename("--ctrl-port", "master-port"),
    Alias(
        ("--dataset", "--data-path"),
        "--data.path, with --data.source indexed",
        lambda value: ["--data.source", "indexed", "--data.path", value],
    ),
    _rename("--split", "data.split"),
    _switch("--reset-position-ids", "--data.reset-position-ids"),
    _switch("--reset-attention-mask", "--data.reset-attention-mask"),
    _switch("--eod-mask-loss", "--data.eod-mask-loss"),
    _rename("--load", "checkpoint.load"),
    _rename("--save", "run-dir"),
    _rename("--save-interval", "checkpoint.every"),
    _rename("--log-interval", "log.every"),
    _rename("--eval-interval", "evaluate.every"),
    _rename("--eval-iters", "evaluate.batches"),
    _no_meaning("--use-rdma", "the collective library picks the transport"),
    _no_meaning("--multihead-attention-fusion", "fused attention is always on"),
    _no_meaning(
        "--make-vocab-size-divisible-by",
        "the vocabulary is padded in memory as a layout needs, never in files",
        True,
    ),
    _no_meaning("--metric-print-format", "metrics are a live bar on a terminal and plain lines elsewhere", True),
    _no_meaning("--save-last", "the last step is always saved"),
    _no_meaning(
        "--no-scale-tril-softmax-dropout-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion",
        "fusion is the compiler's choice; --train.compile off turns it off",
    ),
    _no_meaning("--no-query-key-layer-scaling", "queries and keys are never scaled by layer"),
]

TABLE: list[tuple[str, list[Alias]]] = [("Paddock", COMMON), ("Megatron-LM and OneFlow-GPT", MEGATRON)]


def translate(arguments: list[str], recipe: Recipe) -> tuple[list[str], list[str]]:
    """Replace aliases by Paddock's own flags. Returns the arguments and notes to show the user."""
    table = {flag: alias for _, aliases in TABLE for alias in aliases for flag in alias.flags}
    translated: list[str] = []
    notes: list[str] = []
    used: set[str] = set()
    position = 0
    while position < len(arguments):
        word = arguments[position]
        position += 1
        flag, equals, value = word.partition("=")
        alias = table.get(flag.replace("_", "-") if flag.startswith("--") else flag)
        if alias is None:
            translated.append(word)
            continue
        used.add(alias.flags[0])
        if alias.takes_value and not equals:
            if position == len(arguments):
                raise ConfigError(f"{flag} needs a value", fix=f"it stands for {alias.means}")
            value = arguments[position]
            position += 1
        try:
            translated += alias.expand(value)
        except UserError:
            raise
        except ValueError:
            raise bad_value(flag, value, "it should be a number") from None
        if alias.note:
            notes.append(f"{flag}: {alias.note}")
    return _join_parts(translated, used, recipe), notes


def _join_parts(arguments: list[str], used: set[str], recipe: Recipe) -> list[str]:
    """Aliases that only make sense together: Adam's two betas, the nodes of a job, an omitted global
    batch, and the layers of a stage with their number and that of the stages."""
    arguments, first = _take(arguments, "--adam-beta1")
    arguments, second = _take(arguments, "--adam-beta2")
    if first or second:
        betas = recipe.optimizer.betas
        arguments += ["--optimizer.betas", first or str(betas[0]), second or str(betas[1])]
    arguments, size = _take(arguments, VIRTUAL_STAGE)
    if size:
        arguments += _interleave(size, arguments, recipe)
    arguments, addresses = _take(arguments, "--node-ips")
    num_nodes = _value_of(arguments, "--nnodes")
    if addresses and num_nodes not in (None, "1"):
        nodes = addresses.split(",")[: int(num_nodes or 1)]
        arguments += ["--node-rank", str(_own_position(nodes)), "--master-addr", nodes[0]]
    # As in those systems: a micro-batch without a global batch means micro × data, and the reverse.
    if "--micro-batch-size" in used and "--batch.global" not in arguments:
        arguments += ["--batch.global", "None"]
    if "--global-batch-size" in used and "--batch.micro" not in arguments:
        arguments += ["--batch.micro", "None"]
    return arguments


def _interleave(size: str, arguments: list[str], recipe: Recipe) -> list[str]:
    """An interleaved pipeline whose stages have `size` layers each."""
    layers = int(_value_of(arguments, "--model.layers") or recipe.model.num_layers())
    pipeline = int(_value_of(arguments, "--parallel.pipeline") or recipe.parallel.pipeline)
    if pipeline == 1:
        raise bad_value(
            VIRTUAL_STAGE, size, "there is no pipeline", "set --pipeline-model-parallel-size, or leave it out"
        )
    legal = [n for n in range(1, layers // pipeline) if layers % (n * pipeline) == 0]
    if not size.isdecimal() or int(size) not in legal:
        raise bad_value(
            VIRTUAL_STAGE,
            size,
            f"{layers} layers over {pipeline} processes do not make two or more equal stages each of that size",
            f"legal: {', '.join(map(str, legal))}" if legal else "leave it out, or change the number of layers",
        )
    stages = ",".join(str(layer // int(size)) for layer in range(layers))
    return ["--parallel.schedule", "interleaved", "--parallel.stages", stages]


def _own_position(addresses: list[str]) -> int:
    """Which of these addresses is this host's own: the one that a socket can be bound to."""
    for position, address in enumerate(addresses):
        with socket.socket() as probe:
            try:
                probe.bind((address, 0))
            except OSError:
                continue
            return position
    raise bad_value(
        "--node-ips",
        ",".join(addresses),
        "none of them is an address of this host",
        "run this on one of the nodes",
    )


def _take(arguments: list[str], flag: str) -> tuple[list[str], str | None]:
    """The arguments without a flag and its value, and the value: `--flag value` or `--flag=value`."""
    for position, word in enumerate(arguments):
        if word == flag and position + 1 < len(arguments):
            return arguments[:position] + arguments[position + 2 :], arguments[position + 1]
        if word.startswith(f"{flag}="):
            return arguments[:position] + arguments[position + 1 :], word.partition("=")[2]
    return arguments, None


def _value_of(arguments: Iterable[str], flag: str) -> str | None:
    return _take(list(arguments), flag)[1]
