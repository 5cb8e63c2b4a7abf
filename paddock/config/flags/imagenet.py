"""The flags of PyTorch's ImageNet example and its ports."""

from __future__ import annotations

from paddock.config.flags.alias import Alias, keep, no_meaning, rename, switch

IMAGENET = [
    rename("-a --arch", "model.arch"),
    rename("-j --workers", "data.workers"),
    rename("--epochs", "train.epochs"),
    rename("-b --batch-size", "batch.global"),
    rename("--momentum", "optimizer.momentum"),
    rename("-p --print-freq", "log.every"),
    Alias(
        ("--resume",),
        "--checkpoint.load, with --checkpoint.resume",
        lambda value: ["--checkpoint.load", value, "--checkpoint.resume"],
    ),
    Alias(
        ("--pretrained",),
        "--checkpoint.load, with --checkpoint.weights-only",
        lambda value: ["--checkpoint.load", value, "--checkpoint.weights-only"],
    ),
    switch("-e --evaluate", "--evaluate-only"),
    switch("--benchmark", "--benchmark-only"),
    switch("--dummy", "--data.source", "synthetic"),
    switch("--channels-last", "--model.channels-last"),
    rename("--on-error", "data.on-error"),
    rename("--logfile", "log.file"),
    keep("--world-size", "--nnodes: the example counts machines"),
    keep("--rank", "--node-rank, beside --world-size"),
    keep("--dist-url", "--master-addr and --master-port, when there are several machines"),
    no_meaning("--dist-backend", "the device decides which collective library is used", True),
    no_meaning("--multiprocessing-distributed", "--nproc-per-node says how many processes each machine starts"),
    no_meaning("--gpu", "--device says which kind of device; each process takes its own", True),
    no_meaning("--start-epoch", "a run that goes on from a checkpoint knows its epoch", True),
]


def data_folder(path: str) -> list[str]:
    """The example's one argument without a flag."""
    return ["--data.source", "folder", "--data.path", path]
