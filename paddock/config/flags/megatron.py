"""More flags of Megatron-LM: those beside `tables.py`'s, which are in most scripts; `megatron_rare.py` has the others.
Each is mapped, told what happens instead, or refused with the reason."""

from __future__ import annotations

from paddock.config.flags.alias import (
    Alias,
    built_in,
    choice,
    each,
    impossible,
    keep,
    only_one,
    rename,
    switch,
)

TOKENIZER_FLAGS = ("--tokenizer-type", "--vocab-file", "--merge-file", "--tokenizer-model")
"""Those that say together which tokenizer it is."""
POSITIONS = "--max-position-embeddings"
CHECKPOINT_STEP = "--ckpt-step"
PRETRAINED = "--pretrained-checkpoint"
MUST_BE_THERE = "--exit-on-missing-checkpoint"
VIRTUAL_STAGES = "--num-virtual-stages-per-pipeline-rank"
FUSION = "fusion is the compiler's choice; --train.compile off turns it off"
OVERLAP = "exchanges overlap with computation where torch's engine does it"
TRANSPORT = "the collective library picks the transport"
FLOAT32 = "norms, softmaxes and sums of gradients are in float32 where it matters"
KEPT_IN_FLOAT32 = "weights, gradients and the optimizer's state are in float32"
PROFILER = "a profiler can be a callback (--train.callbacks)"
NO_PAUSES = "the loop has no such pauses and copies"
LOGGED = "it is always measured, and in metrics.jsonl"
IN_METRICS = "metrics.jsonl has all metrics"
REPEATED = (
    "nothing is set: weights, data and dropout follow from the seed; paddock check device says what a device repeats"
)
SELECTIVE = "--parallel.recompute selective is attention and activation functions, whatever is named"
ANY_LAYOUT = "every checkpoint loads in every layout"
WHOLE = "a checkpoint is whole, so that a run can go on"
FOUND = "a process that ends or hangs is found by itself (--train.hang-timeout)"
SIGNALS = "a signal always saves and stops a run"
SAID = "what the recipe and the flags say counts, and what differs from the checkpoint is shown"
BALANCED = "--parallel.stages auto weighs the embedding and the head, too"
STAGES = "--parallel.stages 0,0,1,1 gives the stage of every layer"
ONE_SEQUENCE = "attention is not cut along the sequence"
SHAPES = "the model families here are GPT-2, BERT, T5, mT5 and ResNet"
NEW_FAMILY = "leave it out, or bring the model: paddock zoo new"
ON_HOST = "nothing is moved to the host"
LESS_MEMORY = "--parallel.shard parameters and --parallel.recompute full take memory from a device"
ONE_DECAY = "a decay begins where the warm-up ends"
SPLIT = "a corpus is split by its documents"
BY_SPLIT = "--data-path PREFIX --split 949,50,1"
EVENT_FILES = "event files are in the run directory, under tensorboard/"
EIGHT_BITS = "no device here trains in eight bits or fewer"
FOLDER_SAYS = "the files of a tokenizer's folder say it, and no code in it is run"


MEGATRON_TOO = [
    keep("--tokenizer-type", "--tokenizer.kind, with the files below"),
    keep("--vocab-file", "--tokenizer.vocab"),
    keep("--merge-file", "--tokenizer.merges"),
    keep("--tokenizer-model", "--tokenizer.model, or --tokenizer.path of a Hugging Face folder"),
    rename("--vocab-extra-ids", "tokenizer.extra-ids"),
    keep(POSITIONS, "--model.context"),
    rename("--encoder-num-layers", "model.layers"),
    rename("--decoder-num-layers", "model.decoder-layers"),
    rename("--encoder-seq-length", "data.sequence-length"),
    rename("--decoder-seq-length", "data.target-length"),
    rename("--kv-channels", "model.head-size"),
    rename("--layernorm-epsilon --norm-epsilon", "model.norm-eps"),
    rename("--mask-prob", "data.masking"),
    rename("--sgd-momentum", "optimizer.momentum"),
    switch("--sequence-parallel", "--parallel.sequence"),
    switch("--use-distributed-optimizer", "--parallel.shard", "optimizer"),
    switch("--use-torch-fsdp2 --use-megatron-fsdp --use-custom-fsdp", "--parallel.shard", "parameters"),
    choice("--data-parallel-sharding-strategy", "parallel.shard",
            {"no_shard": "none", "optim": "optimizer", "optim_grads": "optimizer", "optim_grads_params": "parameters"}),
    switch("--recompute-activations", "--parallel.recompute", "selective"),
    choice("--recompute-granularity", "parallel.recompute", {"full": "full", "selective": "selective"}),
    *each("--recompute-method --recompute-num-layers", "every block is computed again, or none", True),
    Alias(("--tensorboard-dir",), "--log.tensorboard, in the run directory", lambda _: ["--log.tensorboard"], note=(
        EVENT_FILES)),
    rename("--num-workers", "data.workers"),
    rename("--data-cache-path", "data.cache"),
    switch("--mock-data", "--data.source", "synthetic"),
    switch("--async-save", "--checkpoint.asynchronous"),
    switch("--finetune", "--checkpoint.weights-only"),
    Alias(("--no-load-optim",), "--checkpoint.weights-only", lambda _: ["--checkpoint.weights-only"], False, (
        "weights alone are taken, and the run begins at its first step")),
    *built_in("--position-embedding-type", "learned_absolute", "a GPT-2 learns its positions"),
    *built_in("--normalization", "LayerNorm", "a GPT-2 has layer norms"),
    *built_in("--data-impl", "mmap infer", "corpora are mapped into memory"),
    *built_in("--dataloader-type", "single", "samples are shuffled once an epoch, by the seed"),
    *only_one("--context-parallel-size", ONE_SEQUENCE),
    *only_one("--expert-model-parallel-size --num-experts", "there are no experts"),
    *impossible("--swiglu --group-query-attention --disable-bias-linear", SHAPES, "leave it out, or bring the model: "
               "paddock zoo new"),
    *impossible("--untie-embeddings-and-output-weights", "a GPT-2's head is its token embedding", "leave it out; a T5 "
               "takes --model.no-tied"),
    *impossible("--num-query-groups --rotary-percent --rotary-base", SHAPES, "leave it out", True),
    *impossible("--rampup-batch-size", "the global batch stays the same", "leave it out", True),
    *impossible("--lr-warmup-samples --lr-decay-samples", "a schedule counts steps, or epochs", "--lr-warmup-iters and "
               "--lr-decay-iters", True),
    *impossible("--train-data-path --valid-data-path --test-data-path", SPLIT, BY_SPLIT, True),
    *impossible("--fp8-format --fp8", EIGHT_BITS, "--bf16", True),
    *each("--use-flash-attn --use-fused-rmsnorm --apply-layernorm-1p", "fused attention and norms are always on"),
    *each("--attention-backend --transformer-impl", "fused attention is always on", True),
    *each("--no-masked-softmax-fusion --no-rope-fusion --no-gradient-accumulation-fusion --no-persist-layer-norm "
           "--bias-gelu-fusion --no-bias-swiglu-fusion", FUSION),
    *each("--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --no-overlap-p2p-communication "
           "--no-async-tensor-model-parallel-allreduce --no-async-tensor-parallel-allreduce "
           "--use-ring-exchange-p2p --no-contiguous-buffers-in-local-ddp", OVERLAP),
    *each("--accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32 --fp32-residual-connection", FLOAT32),
    *each("--apply-query-key-layer-scaling", "queries and keys are never scaled by layer"),
    *each("--use-mcore-models --use-legacy-models --use-cpu-initialization --deprecated-use-mcore-models",
           "there is one model definition, and weights depend on seed and name alone"),
    *each("--DDP-impl --distributed-backend --ckpt-format --dist-ckpt-format --dist-ckpt-strictness",
           "there is one kind: the device and torch choose", True),
    *each("--use-dist-ckpt --ckpt-fully-parallel-save --ckpt-fully-parallel-load --ckpt-assume-constant-structure",
           ANY_LAYOUT),
    *each("--no-save-optim --no-save-rng", WHOLE),
    *each("--no-load-rng", "dropout follows from seed and step, and no state is loaded"),
    *each("--override-opt_param-scheduler --use-checkpoint-opt_param-scheduler --use-checkpoint-args "
           "--override-opt-param-scheduler --use-checkpoint-opt-param-scheduler",
           SAID),
    *each("--distributed-timeout-minutes", FOUND, True),
    *each("--exit-duration-in-mins --exit-interval", "a run ends after its steps; a signal saves and stops it", True),
    *each("--exit-signal-handler", SIGNALS),
    *each("--log-params-norm --log-num-zeros-in-grad", "the norm of the gradient is recorded, these are not"),
    *each("--log-throughput --log-timers-to-tensorboard "
           "--log-validation-ppl-to-tensorboard --log-memory-to-tensorboard --log-batch-size-to-tensorboard "
           "--log-world-size-to-tensorboard --no-log-learnig-rate-to-tensorboard --log-progress", LOGGED),
    *each("--timing-log-level --timing-log-option --tensorboard-log-interval --tensorboard-queue-size",
           "metrics.jsonl has all metrics", True),
    *each("--wandb-project --wandb-exp-name --wandb-save-dir --wandb-entity",
           "metrics.jsonl has all metrics; --log.track wandb sends them there, too", True),
    *each("--min-loss-scale --hysteresis", "the loss scale halves at once, as far as it must", True),
    *each("--check-for-nan-in-loss-and-grad --no-check-for-nan-in-loss-and-grad", "it is always checked, at no cost"),
    *each("--calculate-per-token-loss", "the loss is always the mean over the tokens of the global batch"),
    *each("--bert-no-binary-head", "a BERT is trained on masked tokens alone"),
    *each("--manual-gc --no-create-attention-mask-in-dataloader --no-mmap-bin-files", NO_PAUSES),
    *each("--manual-gc-interval", NO_PAUSES, True),
    *each("--short-seq-prob", "every sample has the whole length", True),
    *each("--local-rank --local_rank", "a process learns its place from the launcher", True),
    *built_in("--weight-decay-incr-style", "constant", "weight decay stays the same"),
    *each("--start-weight-decay --end-weight-decay", "weight decay stays the same (--weight-decay)", True),
    *each("--microbatch-group-size-per-virtual-pipeline-stage", "the schedule says it", True),
]  # fmt: skip
