"""More flags of Megatron-LM: those beside `tables.py`'s, which are in most scripts. Each is mapped, told what happens
instead, or refused with the reason."""

from __future__ import annotations

from paddock.config.flags.alias import (
    Alias,
    built_in,
    choice,
    each,
    impossible,
    keep,
    no_meaning,
    none_of,
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


def _with_none(value: str) -> str:
    """A number of checkpoints to keep, which is all of them from -1 on down."""
    return "None" if value.startswith("-") else value


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

MEGATRON_RARE = [
    switch("--skip-train", "--evaluate-only"),
    keep(CHECKPOINT_STEP, "--checkpoint.load, with the checkpoint of that step"),
    keep(PRETRAINED, "--checkpoint.load with --checkpoint.weights-only, unless --load has a checkpoint"),
    Alias((MUST_BE_THERE,), "--load has a checkpoint, or it is an error", lambda _: [MUST_BE_THERE], takes_value=False),
    keep(VIRTUAL_STAGES, "--parallel.schedule interleaved, with so many --parallel.stages of each process"),
    rename("--model-parallel-size", "parallel.tensor"),
    rename("--persistent-save-interval", "checkpoint.every"),
    rename("--most-recent-k", "checkpoint.keep", _with_none),
    rename("--relative-attention-num-buckets", "model.position-buckets"),
    rename("--relative-attention-max-distance", "model.max-distance"),
    switch("--full-validation", "--evaluate.batches", "None"),
    switch("--dataloader-inter-document-masking", "--data.reset-attention-mask"),
    switch("--openai-gelu", "--model.activation", "gelu_tanh"),
    Alias(("--activations-checkpoint-method",), "--parallel.recompute full",
          lambda _: ["--parallel.recompute", "full"]),
    *each("--activations-checkpoint-num-layers", "every block is computed again, or none", True),
    no_meaning("--recompute-modules", SELECTIVE, True, several=True),
    *each("--distribute-saved-activations --distribute-checkpointed-activations",
          "--parallel.sequence cuts what is kept along the sequence"),
    *each("--deterministic-mode --batch-invariant-mode", REPEATED),
    *each("--create-attention-mask-in-dataloader", "a mask is known from its kind, and never part of a batch"),
    # What would be another model.
    *impossible("--use-rotary-position-embeddings --no-position-embedding --use-rope-scaling --rotary-interleaved "
               "--qk-layernorm --qk-l2-norm --qk-clip --squared-relu --quick-geglu --multi-latent-attention "
               "--add-qkv-bias --apply-residual-connection-post-layernorm --is-hybrid-model "
               "--apply-wd-to-qk-layernorm", SHAPES, NEW_FAMILY),
    *impossible("--rope-scaling-factor --rope-type --rotary-scaling-factor --rotary-seq-len-interpolation-factor "
               "--no-rope-freq --mrope-section --window-size --window-attn-skip-freq --softmax-type --qk-clip-alpha "
               "--qk-clip-threshold --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim "
               "--glu-linear-offset --activation-func-clamp-value --experimental-attention-variant", SHAPES,
               NEW_FAMILY, True),
    *none_of("--moe-* --mtp-* --mamba-* --hybrid-* --retro-* --biencoder-* --retriever-* --ict-* --dino-* --vision-* "
             "--swin-* --yarn-* --heterogeneous-* --linear-attention-* --dsa-* --csa-* --mla-*", SHAPES, NEW_FAMILY),
    *none_of("--fp8-* --fp4-* --kitchen-*", EIGHT_BITS, "--bf16"),
    *none_of("--muon-* --lion-*", "the optimizers here are adamw, adam, sgd and adafactor", "--optimizer adamw"),
    *none_of("--rl-* --grpo-* --langrl-*", "there is no reinforcement learning here"),
    *none_of("--fim-* --sft-*", "samples are text as it is, pairs of texts, or questions with answers"),
    *none_of("--logits-save-* --logits-load-*", "there is no distillation here"),
    *none_of("--inprocess-*", "a job goes on after a failure in new processes", "--max-restarts N"),
    *none_of("--inference-*", "writing is a verb of its own", "paddock generate --help"),
    *impossible("--sft", "samples are text as it is, pairs of texts, or questions with answers",
               "for pairs: paddock recipe show t5/reverse"),
    *impossible("--perform-rl-step", "there is no reinforcement learning here", "leave it out"),
    *impossible("--first-last-layers-bf16", EIGHT_BITS, "--bf16"),
    *impossible("--num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16", EIGHT_BITS, "--bf16", True),
    *impossible("--freeze-all-layers", "all weights are trained", "paddock evaluate measures without training"),
    *impossible("--init-method-xavier-uniform --data-parallel-random-init",
               "first weights are drawn from a normal distribution, the same in every replica", "--init-method-std X"),
    *impossible("--embedding-init-method-std", "embeddings are drawn as other weights", "--init-method-std X", True),
    # What would be another training of it.
    *built_in("--lr-warmup-init", "0 0.0", "a warm-up begins at nothing"),
    *built_in("--head-lr-mult", "1 1.0", "all weights have one learning rate"),
    *built_in("--sample-rate", "1 1.0", "all samples are seen"),
    *impossible("--lr-wsd-decay-style --lr-wsd-decay-iters --lr-wsd-decay-samples", ONE_DECAY,
               "--lr-decay-style cosine, linear or constant", True),
    *impossible("--decoupled-lr --decoupled-min-lr", "all weights have one learning rate", "--lr X", True),
    *impossible("--iterations-to-skip --phase-transition-iterations --step-batch-size-schedule",
               "all steps are made, and all alike", "leave it out", True),
    *impossible("--decrease-batch-size-if-needed", "a batch that the processes do not divide is an error",
               "--global-batch-size N of which they do"),
    *impossible("--no-weight-decay-cond-type", "norms and biases have no weight decay", "leave it out", True),
    *impossible("--eval-global-batch-size --eval-micro-batch-size --start-eval-at-iter",
               "evaluation has the batches of training, from the beginning on", "leave it out", True),
    *impossible("--multiple-validation-sets", "there is one validation part",
               "paddock evaluate RUN --data.path OTHER measures on another corpus"),
    *impossible("--data-args-path --per-split-data-args-path", "weights and corpora are said on the command line",
               "--data-path 0.3 FIRST 0.7 SECOND", True),
    *impossible("--yaml-cfg", "Megatron-LM's YAML is not read", "give its settings as flags: they work here", True),
    *impossible("--fake-process-group", "a layout is tried without processes by a verb's own flags",
               "--dry-run --world N"),
    *impossible("--optimizer-cpu-offload --use-cpu-offloading --cpu-offloading --use-torch-optimizer-for-cpu-offload "
               "--overlap-cpu-optimizer-d2h-h2d --fine-grained-activation-offloading", ON_HOST, LESS_MEMORY),
    *impossible("--optimizer-offload-fraction --cpu-offloading-num-layers --offload-modules", ON_HOST, LESS_MEMORY,
               True),
    *impossible("--save-retain-interval", "the newest checkpoints stay, as many as --checkpoint.keep says",
               "--checkpoint.keep N", True),
    *impossible("--override-ckpt-iteration", "a checkpoint knows its step", "leave it out; --finetune begins at the "
               "first", True),
    *impossible("--ckpt-convert-format --ckpt-convert-save", ANY_LAYOUT, "paddock convert RUN FOLDER --to huggingface",
               True),
    *impossible("--save-params-interval --save-activations-interval --save-wgrads-interval --save-dgrads-interval",
               "a run keeps checkpoints and metrics", "paddock align record keeps one step, layer by layer", True),
    *impossible("--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers "
               "--pipeline-model-parallel-layout --pipeline-model-parallel-split-rank",
               "layers are cut by their cost, or as you list them", STAGES, True),
    *only_one("--expert-tensor-parallel-size", "there are no experts"),
    *built_in("--encoder-tensor-model-parallel-size --encoder-pipeline-model-parallel-size", "0",
             "encoder and decoder share one layout"),
    *each("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
          "--standalone-embedding-stage", BALANCED),
    *each("--cp-comm-type --hierarchical-context-parallel-sizes", ONE_SEQUENCE, True),
    # What changes nothing of the result.
    *each("--cross-entropy-loss-fusion", "the loss is computed with the head, a chunk of rows at a time"),
    *each("--cross-entropy-fusion-impl", "the loss is computed with the head, a chunk of rows at a time", True),
    *each("--fp16-lm-cross-entropy --embedding-weights-in-fp32 --disable-bf16-reduced-precision-matmul", FLOAT32),
    *each("--use-precision-aware-optimizer --grad-reduce-in-bf16", KEPT_IN_FLOAT32),
    *each("--main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype", KEPT_IN_FLOAT32, True),
    *each("--enable-cuda-graph --external-cuda-graph --optimizer-cuda-graph", "a step is not recorded and played back"),
    *each("--cuda-graph-impl --cuda-graph-scope --cuda-graph-modules --cuda-graph-warmup-steps",
          "a step is not recorded and played back", True),
    *each("--te-rng-tracker --inference-rng-tracker", "random numbers follow from seed, step and name"),
    *each("--use-te-activation-func --disable-jit-fuser", FUSION),
    *each("--overlap-p2p-communication --overlap-p2p-communication-warmup-flush --ddp-average-in-collective "
          "--overlap-param-gather-with-optimizer-step --no-align-grad-reduce --no-align-param-gather "
          "--align-param-gather --no-delay-grad-reduce --delay-grad-reduce --delay-param-gather --delay-wgrad-compute "
          "--defer-embedding-wgrad-compute --ddp-pad-buckets-for-high-nccl-busbw --tp-comm-overlap-rs-dgrad "
          "--disable-tp-comm-overlap-ag --disable-tp-comm-overlap-rs --disable-tp-comm-bulk-dgrad "
          "--disable-tp-comm-bulk-wgrad --disable-tp-comm-split-ag --disable-tp-comm-split-rs "
          "--no-scatter-gather-tensors-in-pipeline --no-clone-scatter-output-in-embedding --create-all-gather-group "
          "--no-gradient-reduce-div-fusion --torch-fsdp2-no-reshard-after-forward --fsdp-double-buffer "
          "--fsdp-manual-registration --init-model-with-meta-device", OVERLAP),
    *each("--ddp-bucket-size --ddp-num-buckets --wgrad-deferral-limit --tp-comm-overlap-cfg "
          "--tp-comm-bootstrap-backend --suggested-communication-unit-size --num-distributed-optimizer-instances "
          "--symmetric-ar-type", OVERLAP, True),
    *each("--use-sharp --use-nccl-ub --disable-gloo-process-groups --enable-gloo-process-groups "
          "--disable-symmetric-registration", TRANSPORT),
    *each("--pipeline-model-parallel-comm-backend --nccl-communicator-config-path --sharp-enabled-group", TRANSPORT,
          True),
    no_meaning("--high-priority-stream-groups", TRANSPORT, True, several=True),
    *each("--use-tp-pp-dp-mapping", "ranks are numbered over tensor, then data, then pipeline parallelism"),
    *each("--no-initialization --perform-initialization", "weights follow from seed and name alone"),
    *each("--lazy-mpu-init", "weights follow from seed and name alone", True),
    *each("--distributed-timeout-seconds-after-init", FOUND, True),
    *each("--auto-detect-ckpt-format --no-ckpt-fully-parallel-save --dist-ckpt-optim-fully-reshardable "
          "--distrib-optim-fully-reshardable-mem-efficient --ckpt-convert-update-legacy-dist-opt-format "
          "--dist-ckpt-save-pre-mcore-014 --no-strict-fsdp-dtensor-load", ANY_LAYOUT),
    *each("--ckpt-fully-parallel-load-exchange-algo --ckpt-fully-parallel-save-process-group "
          "--ckpt-fully-parallel-load-process-group", ANY_LAYOUT, True),
    *each("--use-persistent-ckpt-worker --async-ckpt-use-cpu-shm",
          "--async-save writes in the background"),
    *each("--dist-ckpt-workers --async-strategy --async-ckpt-cpu-priority --async-ckpt-io-priority",
          "--async-save writes in the background", True),
    *each("--non-persistent-save-interval --non-persistent-ckpt-type --non-persistent-global-ckpt-dir "
          "--non-persistent-local-ckpt-dir --non-persistent-local-ckpt-algo --replication-factor --replication-jump",
          "there is one kind of checkpoint, written every --checkpoint.every steps", True),
    *each("--replication", "there is one kind of checkpoint, written every --checkpoint.every steps"),
    *each("--verify-integrity", "a checkpoint that is cut off or lacks something is an error"),
    *each("--load-main-params-from-ckpt", "weights are always loaded in float32"),
    *each("--use-mp-args-from-checkpoint-args --no-use-tokenizer-model-from-checkpoint-args "
          "--override-lr-scheduler --use-checkpoint-lr-scheduler", SAID),
    *each("--adlr-autoresume --exit-signal-handler-for-dataloader --exit-signal-handler-for-training", SIGNALS),
    *each("--adlr-autoresume-interval --exit-signal", SIGNALS, True),
    *each("--check-for-spiky-loss --check-for-large-grads",
          "that loss and gradients are finite is always checked; metrics.jsonl has both"),
    *each("--check-weight-hash-across-dp-replicas-interval --gpu-sniff-test-interval --rerun-mode "
          "--error-injection-rate --error-injection-type",
          "--train.replay-every N computes every so many steps twice, and compares", True),
    *each("--profile --use-pytorch-profiler --record-memory-history --nvtx-ranges --record-shapes "
          "--pytorch-profiler-collect-shapes --pytorch-profiler-collect-callstack --pytorch-profiler-collect-chakra",
          PROFILER),
    *each("--profile-step-start --profile-step-end --memory-snapshot-path", PROFILER, True),
    no_meaning("--profile-ranks", PROFILER, True, several=True),
    *each("--log-energy --log-straggler --log-max-attention-logit --log-device-memory-used "
          "--log-l2-norm-grad-to-tensorboard --log-runtime-to-tensorboard --no-log-loss-scale-to-tensorboard "
          "--log-throughput-to-tensorboard --disable-straggler-on-startup --no-barrier-with-level-1-timing "
          "--enable-one-logger --no-one-logger --otel-enabled --run-workload-inspector-server", IN_METRICS),
    *each("--log-memory-interval --logging-level --straggler-ctrlr-port --straggler-minmax-count "
          "--throughput-window-size --runtime-time-unit --app-tag-run-name --app-tag-run-version "
          "--otel-service-name --otel-span-groups --one-logger-project --one-logger-run-name "
          "--workload-inspector-server-port", IN_METRICS, True),
    *each("--config-logger-dir --save-config-filepath", "config.yaml in the run directory is the recipe as it ran",
          True),
    *each("--enable-ft-package --calc-ft-timeouts", "--max-restarts N goes on after a process or a machine has failed"),
    *each("--tokenizer-hf-use-fast --tokenizer-hf-no-use-fast --tokenizer-hf-include-special-tokens "
          "--tokenizer-hf-no-include-special-tokens --trust-remote-code --legacy-tokenizer "
          "--tokenizer-sentencepiece-legacy", FOLDER_SAYS),
    *each("--tokenizer-metadata", FOLDER_SAYS, True),
    *none_of("--tiktoken-*", "there is no tiktoken here", "--tokenizer-type HuggingFaceTokenizer, with a folder"),
    *each("--padded-vocab-size", "the vocabulary is padded in memory as a layout needs, never in files", True),
    *each("--no-pad-vocab-size", "the vocabulary is padded in memory as a layout needs, never in files"),
    *each("--mmap-warmup --no-data-sharding --dataloader-fast-cache-load --dataloader-defer-npy-index-mmap "
          "--renormalize-blend-weights", "indexes are made once, kept, and mapped into memory"),
    *each("--mid-level-dataset-surplus --num-dataset-builder-threads --per-dataset-sequences-path "
          "--object-storage-cache-path --s3-cache-path", "indexes are made once, kept, and mapped into memory", True),
    *each("--no-manual-gc-eval", NO_PAUSES),
    *each("--empty-unused-memory-level --train-sync-interval", NO_PAUSES, True),
    no_meaning("--spec", "there is one model definition", True, several=True),
    *each("--enable-experimental --disable-msc --enable-msc", "there is nothing that it would turn on"),
]  # fmt: skip
"""Seen in fewer scripts."""
