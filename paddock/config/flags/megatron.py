"""The flags of Megatron-LM and OneFlow-GPT."""

from __future__ import annotations

from paddock.config.flags.alias import Alias, keep, no_meaning, rename, switch

VIRTUAL_STAGE = "--num-layers-per-virtual-pipeline-stage"


def _none_if_zero(value: str) -> str:
    return "None" if float(value) == 0 else value


MEGATRON = [
    rename("--num-layers", "model.layers"),
    rename("--hidden-size", "model.hidden"),
    rename("--num-attention-heads", "model.heads"),
    rename("--ffn-hidden-size", "model.feed-forward"),
    rename("--vocab-size", "model.vocab"),
    Alias(
        ("--seq-length",),
        "--data.sequence-length and --model.context",
        lambda value: ["--data.sequence-length", value, "--model.context", value],
    ),
    rename("--attention-dropout", "model.attention-dropout"),
    rename("--hidden-dropout", "model.dropout"),
    rename("--init-method-std", "model.init-std"),
    rename("--weight-decay --wd", "optimizer.weight-decay"),
    rename("--clip-grad", "optimizer.clip", _none_if_zero),
    rename("--adam-eps", "optimizer.eps"),
    keep("--adam-beta1", "the first of --optimizer.betas"),
    keep("--adam-beta2", "the second of --optimizer.betas"),
    rename("--optimizer", "optimizer.name"),
    rename("--learning-rate --lr", "optimizer.lr"),
    rename("--min-lr", "schedule.min-lr"),
    rename("--lr-decay-style", "schedule.name"),
    rename("--lr-decay-iters", "schedule.decay-steps"),
    rename("--lr-warmup-fraction --lr-warmup-iters", "schedule.warmup"),
    rename("--micro-batch-size", "batch.micro"),
    rename("--global-batch-size", "batch.global"),
    rename("--num-accumulation-steps", "batch.accumulation"),
    rename("--train-iters", "train.steps"),
    Alias(
        ("--train-samples",),
        "--train.samples",
        lambda value: ["--train.samples", value, "--train.steps", "None"],
    ),
    switch("--checkpoint-activations", "--parallel.recompute", "full"),
    switch("--fp16", "--precision.compute", "float16"),
    switch("--bf16", "--precision.compute", "bfloat16"),
    rename("--loss-scale", "precision.loss-scale"),
    rename("--initial-loss-scale", "precision.initial-scale"),
    rename("--loss-scale-window", "precision.scale-window", lambda value: str(int(float(value)))),
    rename("--tensor-model-parallel-size", "parallel.tensor"),
    rename("--pipeline-model-parallel-size", "parallel.pipeline"),
    keep(VIRTUAL_STAGE, "--parallel.schedule interleaved, with --parallel.stages of that many layers"),
    rename("--num-gpus-per-node", "nproc-per-node"),
    rename("--num-nodes", "nnodes"),
    keep("--node-ips", "--node-rank and --master-addr, when there are several nodes"),
    rename("--ctrl-port", "master-port"),
    Alias(
        ("--dataset", "--data-path"),
        "--data.path, with --data.source indexed",
        lambda value: ["--data.source", "indexed", "--data.path", value],
    ),
    rename("--split", "data.split"),
    switch("--reset-position-ids", "--data.reset-position-ids"),
    switch("--reset-attention-mask", "--data.reset-attention-mask"),
    switch("--eod-mask-loss", "--data.eod-mask-loss"),
    rename("--load", "checkpoint.load"),
    rename("--save", "run-dir"),
    rename("--save-interval", "checkpoint.every"),
    rename("--log-interval", "log.every"),
    rename("--eval-interval", "evaluate.every"),
    rename("--eval-iters", "evaluate.batches"),
    no_meaning("--use-rdma", "the collective library picks the transport"),
    no_meaning("--multihead-attention-fusion", "fused attention is always on"),
    no_meaning(
        "--make-vocab-size-divisible-by",
        "the vocabulary is padded in memory as a layout needs, never in files",
        True,
    ),
    no_meaning("--metric-print-format", "metrics are a live bar on a terminal and plain lines elsewhere", True),
    no_meaning("--save-last", "the last step is always saved"),
    no_meaning(
        "--no-scale-tril-softmax-dropout-fusion --no-bias-gelu-fusion --no-bias-dropout-fusion",
        "fusion is the compiler's choice; --train.compile off turns it off",
    ),
    no_meaning("--no-query-key-layer-scaling", "queries and keys are never scaled by layer"),
]
