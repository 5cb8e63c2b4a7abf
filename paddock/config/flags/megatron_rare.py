"""Flags of Megatron-LM that few scripts have: with those of `tables.py` and `megatron.py`, all that its parser
knows. A family that shares a beginning shares a line."""

from __future__ import annotations

from paddock.config.flags.alias import (
    Alias,
    any_of,
    built_in,
    each,
    impossible,
    keep,
    no_meaning,
    none_of,
    off,
    only_one,
    rename,
    switch,
)
from paddock.config.flags.megatron import (
    ANY_LAYOUT,
    BALANCED,
    CHECKPOINT_STEP,
    EIGHT_BITS,
    FLOAT32,
    FOLDER_SAYS,
    FOUND,
    FUSION,
    IN_METRICS,
    KEPT_IN_FLOAT32,
    LESS_MEMORY,
    MUST_BE_THERE,
    NEW_FAMILY,
    NO_PAUSES,
    ON_HOST,
    ONE_DECAY,
    ONE_SEQUENCE,
    OVERLAP,
    PRETRAINED,
    PROFILER,
    REPEATED,
    SAID,
    SELECTIVE,
    SHAPES,
    SIGNALS,
    STAGES,
    TRANSPORT,
    VIRTUAL_STAGES,
)

NO_EXPERTS = "there are no experts"
NO_REPLAY = "a step is not recorded and played back"
NO_IMAGES = "images are a ResNet's, and its fields say how"
WRITING = "writing is a verb of its own"
WHERE_WRITING = "paddock generate --help"
ONE_KIND = "there is one kind of checkpoint, written every --checkpoint.every steps"
IN_BACKGROUND = "--async-save writes in the background"
INDEXES = "indexes are made once, kept, and mapped into memory"
PADDED = "the vocabulary is padded in memory as a layout needs, never in files"
CHUNKED = "the loss is computed with the head, a chunk of rows at a time"


def _with_none(value: str) -> str:
    """A number of checkpoints to keep, which is all of them from -1 on down."""
    return "None" if value.startswith("-") else value


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
    *each("--batch-invariant-backend", REPEATED, True),
    *each("--onnx-safe", "nothing is exported to ONNX", True),
    *each("--create-attention-mask-in-dataloader", "a mask is known from its kind, and never part of a batch"),
    # What would be another model.
    *impossible("--use-rotary-position-embeddings --no-position-embedding --use-rope-scaling --rotary-interleaved "
               "--qk-layernorm --qk-l2-norm --qk-clip --squared-relu --quick-geglu --multi-latent-attention "
               "--add-qkv-bias --apply-residual-connection-post-layernorm --is-hybrid-model "
               "--apply-wd-to-qk-layernorm --attention-output-gate --use-fused-weighted-squared-relu "
               "--cache-mla-latents --enable-mhc-connections --use-mup", SHAPES, NEW_FAMILY),
    *impossible("--rope-scaling-factor --rope-type --rotary-scaling-factor --rotary-seq-len-interpolation-factor "
               "--no-rope-freq --mrope-section --window-size --window-attn-skip-freq --softmax-type --qk-clip-alpha "
               "--qk-clip-threshold --q-lora-rank --kv-lora-rank --qk-head-dim --qk-pos-emb-head-dim --v-head-dim "
               "--glu-linear-offset --activation-func-clamp-value --experimental-attention-variant --mscale "
               "--mscale-all-dim", SHAPES, NEW_FAMILY, True),
    *none_of("--moe-* --mtp-* --mamba-* --hybrid-* --retro-* --biencoder-* --retriever-* --ict-* --dino-* --vision-* "
             "--swin-* --yarn-* --heterogeneous-* --linear-* --dsa-* --csa-* --mla-* --gdp-* --mhc-* --mup-*", SHAPES,
             NEW_FAMILY),
    *impossible("--bert-embedder-type --bert-load --block-data-path --embedding-path --evidence-data-path "
               "--titles-data-path --query-in-block-prob --indexer-batch-size --indexer-log-interval",
               "there is no retrieval here", "leave it out", True),
    *impossible("--use-one-sent-docs --output-bert-embeddings", "there is no retrieval here", "leave it out"),
    *impossible("--img-h --img-w --num-channels --num-classes --patch-dim --classes-fraction "
               "--data-per-class-fraction --iter-per-epoch --mask-type --mask-factor", NO_IMAGES,
               "paddock train resnet/tiny-synthetic --help", True),
    *none_of("--fp8-* --fp4-* --kitchen-*", EIGHT_BITS, "--bf16"),
    *impossible("--use-kitchen-attention --keep-fp8-transpose-cache --reuse-grad-buf-for-mxfp8-param-ag", EIGHT_BITS,
               "--bf16"),
    *impossible("--te-precision-config-file", EIGHT_BITS, "--bf16", True),
    *none_of("--muon-* --lion-*", "the optimizers here are adamw, adam, sgd and adafactor", "--optimizer adamw"),
    *none_of("--rl-* --grpo-* --langrl-*", "there is no reinforcement learning here"),
    *none_of("--fim-* --sft-*", "samples are text as it is, pairs of texts, or questions with answers"),
    *none_of("--logits-save-* --logits-load-*", "there is no distillation here"),
    *none_of("--inprocess-*", "a job goes on after a failure in new processes", "--max-restarts N"),
    *none_of("--inference-*", WRITING, WHERE_WRITING),
    *impossible("--decode-only-cuda-graphs --enable-chunked-prefill --flash-decode --nccl-all-reduce-for-prefill "
               "--use-legacy-static-engine --use-same-sampling-seed-across-dp-ranks", WRITING, WHERE_WRITING),
    *impossible("--max-tokens-to-oom --mlp-chunks-for-prefill --num-speculative-tokens", WRITING, WHERE_WRITING, True),
    *impossible("--sft", "samples are text as it is, pairs of texts, or questions with answers",
               "for pairs: paddock recipe show t5/reverse"),
    *impossible("--refit-method", "there is no reinforcement learning here", "leave it out", True),
    *impossible("--perform-rl-step", "there is no reinforcement learning here", "leave it out"),
    *impossible("--first-last-layers-bf16", EIGHT_BITS, "--bf16"),
    *impossible("--num-layers-at-start-in-bf16 --num-layers-at-end-in-bf16", EIGHT_BITS, "--bf16", True),
    *impossible("--freeze-all-layers", "all weights are trained", "paddock evaluate measures without training"),
    *impossible("--init-method-xavier-uniform --data-parallel-random-init",
               "first weights are drawn from a normal distribution, the same in every replica", "--init-method-std X"),
    *impossible("--embedding-init-method-std", "embeddings are drawn as other weights", "--init-method-std X", True),
    # What would be another training of it.
    *built_in("--lr-warmup-init", "0 0.0", "a warm-up begins at nothing"),
    *impossible("--warmup", "it may be a part of the run or a number of steps", "--lr-warmup-fraction X or "
               "--lr-warmup-iters N", True),
    *impossible("--batch-size", "it may be the batch of a process or of all", "--micro-batch-size N or "
               "--global-batch-size N", True),
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
    no_meaning("--validation-set-names", "there is one validation part", True, several=True),
    *impossible("--data-args-path --per-split-data-args-path", "weights and corpora are said on the command line",
               "--data-path 0.3 FIRST 0.7 SECOND", True),
    *none_of("--fault-injector-*", "nothing is broken on purpose while a recipe trains",
             "kill a process, or read docs/guides/faults.md"),
    *impossible("--yaml-cfg", "Megatron-LM's YAML is not read", "give its settings as flags: they work here", True),
    *impossible("--fake-process-group", "a layout is tried without processes by a verb's own flags",
               "--dry-run --world N"),
    *impossible("--optimizer-cpu-offload --use-cpu-offloading --cpu-offloading --use-torch-optimizer-for-cpu-offload "
               "--overlap-cpu-optimizer-d2h-h2d --fine-grained-activation-offloading", ON_HOST, LESS_MEMORY),
    *impossible("--optimizer-offload-fraction --cpu-offloading-num-layers --offload-modules", ON_HOST, LESS_MEMORY,
               True),
    *each("--no-pin-cpu-grads --no-pin-cpu-params --cpu-offloading-retain-pinned-cpu-buffers "
          "--delay-offload-until-cuda-graph", ON_HOST),
    *each("--activation-offload-fraction --delta-offload-bytes-across-pp-ranks --min-offloaded-tensor-size "
          "--fine-grained-offloading-max-inflight-offloads", ON_HOST, True),
    *impossible("--save-retain-interval", "the newest checkpoints stay, as many as --checkpoint.keep says",
               "--checkpoint.keep N", True),
    *impossible("--override-ckpt-iteration", "a checkpoint knows its step", "leave it out; --finetune begins at the "
               "first", True),
    *impossible("--ckpt-convert-format --ckpt-convert-save", ANY_LAYOUT, "paddock convert RUN FOLDER --to huggingface",
               True),
    *impossible("--save-params-interval --save-activations-interval --save-wgrads-interval --save-dgrads-interval "
               "--save-tokens-per-expert-interval",
               "a run keeps checkpoints and metrics", "paddock align record keeps one step, layer by layer", True),
    *impossible("--decoder-first-pipeline-num-layers --decoder-last-pipeline-num-layers "
               "--pipeline-model-parallel-layout --pipeline-model-parallel-split-rank",
               "layers are cut by their cost, or as you list them", STAGES, True),
    *only_one("--expert-tensor-parallel-size", NO_EXPERTS),
    *each("--overlap-moe-expert-parallel-comm --overlap-dispatch-backward-with-experts-wgrad "
          "--ep-overlap-early-attn-memory-release --use-grouped-gemm-for-shared-expert "
          "--high-priority-a2a-comm-stream", NO_EXPERTS),
    *each("--expert-tensor-parallel-num-weight-shards", NO_EXPERTS, True),
    *impossible("--tensor-parallel-num-weight-shards", "weights are cut as tensor parallelism and FSDP cut them",
               "--parallel.tensor N, --parallel.shard parameters", True),
    any_of("--gtp-*", "weights are cut as tensor parallelism and FSDP cut them"),
    *built_in("--encoder-tensor-model-parallel-size --encoder-pipeline-model-parallel-size", "0",
             "encoder and decoder share one layout"),
    *each("--account-for-embedding-in-pipeline-split --account-for-loss-in-pipeline-split "
          "--standalone-embedding-stage", BALANCED),
    *each("--cp-comm-type --hierarchical-context-parallel-sizes", ONE_SEQUENCE, True, several=True),
    *each("--max-seqlen-per-dp-cp-rank", ONE_SEQUENCE, True),
    # What changes nothing of the result.
    *each("--cross-entropy-loss-fusion", CHUNKED),
    *each("--cross-entropy-fusion-impl --mlp-chunks-for-training", CHUNKED, True),
    *each("--fp16-lm-cross-entropy --embedding-weights-in-fp32 --disable-bf16-reduced-precision-matmul "
          "--ddp-reduce-scatter-with-fp32-accumulation", FLOAT32),
    *each("--output-logit-dtype", FLOAT32, True),
    *each("--ddp-param-name-patterns-for-fp32-local-accumulation", FLOAT32, True, several=True),
    *each("--use-precision-aware-optimizer --grad-reduce-in-bf16", KEPT_IN_FLOAT32),
    *each("--main-grads-dtype --main-params-dtype --exp-avg-dtype --exp-avg-sq-dtype", KEPT_IN_FLOAT32, True),
    *each("--enable-cuda-graph --external-cuda-graph --optimizer-cuda-graph", NO_REPLAY),
    *each("--cuda-graph-impl --cuda-graph-warmup-steps", NO_REPLAY, True),
    *each("--cuda-graph-scope --cuda-graph-modules", NO_REPLAY, True, several=True),
    *each("--te-rng-tracker --inference-rng-tracker", "random numbers follow from seed, step and name"),
    *each("--use-te-activation-func --disable-jit-fuser --fused-residual-rmsnorm --use-transformer-engine-op-fuser "
          "--use-grouped-gemm-for-dense-mlp", FUSION),
    *each("--flash-attention-version", "fused attention is always on", True),
    *each("--overlap-p2p-communication --overlap-p2p-communication-warmup-flush --ddp-average-in-collective "
          "--overlap-param-gather-with-optimizer-step --no-align-param-gather "
          "--align-param-gather --no-delay-grad-reduce --delay-grad-reduce --delay-param-gather --delay-wgrad-compute "
          "--defer-embedding-wgrad-compute --ddp-pad-buckets-for-high-nccl-busbw --tp-comm-overlap-rs-dgrad "
          "--no-scatter-gather-tensors-in-pipeline --create-all-gather-group --no-use-layer-wise-param-layout "
          "--enable-full-sharding-in-hsdp --fsdp-db-use-persist-buf-on-alloc-fail "
          "--no-gradient-reduce-div-fusion --torch-fsdp2-no-reshard-after-forward --fsdp-double-buffer "
          "--fsdp-manual-registration --init-model-with-meta-device", OVERLAP),
    *off("align-grad-reduce tp-comm-overlap-ag tp-comm-overlap-rs tp-comm-bulk-dgrad tp-comm-bulk-wgrad "
         "tp-comm-split-ag tp-comm-split-rs clone-scatter-output-in-embedding", OVERLAP),
    any_of("--megatron-fsdp-*", "torch's own FSDP is used"),
    *each("--outer-dp-sharding-strategy", "torch's own FSDP is used", True),
    *each("--ddp-bucket-size --ddp-num-buckets --wgrad-deferral-limit --tp-comm-overlap-cfg "
          "--tp-comm-bootstrap-backend --suggested-communication-unit-size --num-distributed-optimizer-instances "
          "--symmetric-ar-type", OVERLAP, True),
    *each("--use-sharp --use-nccl-ub --disable-gloo-process-groups --enable-gloo-process-groups "
          "--disable-symmetric-registration", TRANSPORT),
    *each("--pipeline-model-parallel-comm-backend --nccl-communicator-config-path --sharp-enabled-group", TRANSPORT,
          True),
    no_meaning("--high-priority-stream-groups", TRANSPORT, True, several=True),
    *each("--use-tp-pp-dp-mapping", "ranks are numbered over tensor, then data, then pipeline parallelism"),
    *each("--no-initialization --perform-initialization --lazy-mpu-init", "weights follow from seed and name alone"),
    *each("--distributed-timeout-seconds-after-init --ft-num-warmup-iters", FOUND, True),
    any_of("--flight-recorder-*", FOUND),
    *each("--auto-detect-ckpt-format --no-ckpt-fully-parallel-save --dist-ckpt-optim-fully-reshardable "
          "--distrib-optim-fully-reshardable-mem-efficient --ckpt-convert-update-legacy-dist-opt-format "
          "--dist-ckpt-save-pre-mcore-014 --ckpt-drop-redundant-extra-state "
          "--ckpt-fully-parallel-load-per-rank-objects --ckpt-pg-tensors-cache-create", ANY_LAYOUT),
    *off("strict-fsdp-dtensor-load", ANY_LAYOUT),
    *each("--ckpt-fully-parallel-load-exchange-algo --ckpt-fully-parallel-save-process-group "
          "--ckpt-fully-parallel-load-process-group --ckpt-pg-tensors-cache-path", ANY_LAYOUT, True),
    *each("--use-persistent-ckpt-worker --async-ckpt-use-cpu-shm", IN_BACKGROUND),
    *each("--dist-ckpt-workers --async-strategy --async-ckpt-cpu-priority --async-ckpt-io-priority",
          IN_BACKGROUND, True),
    *each("--non-persistent-save-interval --non-persistent-ckpt-type --non-persistent-global-ckpt-dir "
          "--non-persistent-local-ckpt-dir --non-persistent-local-ckpt-algo --replication-factor --replication-jump",
          ONE_KIND, True),
    *each("--replication", ONE_KIND),
    *each("--verify-integrity", "a checkpoint that is cut off or lacks something is an error"),
    *off("ckpt-load-validate-sharding-integrity", "a checkpoint that is cut off or lacks something is an error"),
    *off("save-tokenizer-assets", "the tokenizer is kept in the run directory"),
    *each("--load-main-params-from-ckpt", "weights are always loaded in float32"),
    *each("--use-mp-args-from-checkpoint-args --override-lr-scheduler "
          "--use-checkpoint-lr-scheduler", SAID),
    *off("use-tokenizer-model-from-checkpoint-args", SAID),
    *each("--adlr-autoresume --exit-signal-handler-for-dataloader --exit-signal-handler-for-training", SIGNALS),
    *each("--adlr-autoresume-interval --exit-signal", SIGNALS, True),
    *each("--check-for-spiky-loss --check-for-large-grads",
          "that loss and gradients are finite is always checked; metrics.jsonl has both"),
    *each("--check-weight-hash-across-dp-replicas-interval --gpu-sniff-test-interval --rerun-mode "
          "--error-injection-rate --error-injection-type "
          "--result-rejected-tracker-filename",
          "--train.replay-every N computes every so many steps twice, and compares", True),
    *each("--profile --use-pytorch-profiler --record-memory-history --nvtx-ranges --record-shapes "
          "--pytorch-profiler-collect-shapes --pytorch-profiler-collect-callstack --pytorch-profiler-collect-chakra",
          PROFILER),
    *each("--profile-step-start --profile-step-end --memory-snapshot-path", PROFILER, True),
    no_meaning("--profile-ranks", PROFILER, True, several=True),
    *each("--log-energy --log-straggler --log-max-attention-logit --log-device-memory-used "
          "--log-l2-norm-grad-to-tensorboard --log-runtime-to-tensorboard --one-logger-async "
          "--log-throughput-to-tensorboard --disable-straggler-on-startup --no-barrier-with-level-1-timing "
          "--enable-one-logger --no-one-logger --otel-enabled --run-workload-inspector-server", IN_METRICS),
    *off("log-loss-scale-to-tensorboard", IN_METRICS),
    *each("--log-memory-interval --logging-level --straggler-ctrlr-port --straggler-minmax-count "
          "--throughput-window-size --runtime-time-unit --app-tag-run-name --app-tag-run-version "
          "--otel-service-name --otel-span-groups --one-logger-project --one-logger-run-name "
          "--workload-inspector-server-port", IN_METRICS, True),
    *each("--dump-param-to-param-group-map", "norms and biases have no weight decay, all other weights have it", True),
    *each("--config-logger-dir --save-config-filepath", "config.yaml in the run directory is the recipe as it ran",
          True),
    *each("--enable-ft-package --calc-ft-timeouts", "--max-restarts N goes on after a process or a machine has failed"),
    *each("--tokenizer-hf-use-fast --tokenizer-hf-no-use-fast --tokenizer-hf-include-special-tokens "
          "--tokenizer-hf-no-include-special-tokens --trust-remote-code --legacy-tokenizer "
          "--tokenizer-sentencepiece-legacy --use-gigatoken --allow-ambiguous-pad-tokens", FOLDER_SAYS),
    *off("tokenizer-sentencepiece-ignore-extra-whitespaces", FOLDER_SAYS),
    *each("--tokenizer-metadata", FOLDER_SAYS, True),
    no_meaning("--tokenizer-special-tokens", FOLDER_SAYS, True, several=True),
    *impossible("--chat-template", "samples are text as it is, pairs of texts, or questions with answers",
               "put the words of the template into the text", True),
    rename("--null-tokenizer-eod-id", "data.eod"),
    *each("--null-tokenizer-pad-id", "without a tokenizer, samples are never padded", True),
    *none_of("--tiktoken-*", "there is no tiktoken here", "--tokenizer-type HuggingFaceTokenizer, with a folder"),
    *each("--padded-vocab-size", PADDED, True),
    *off("pad-vocab-size", PADDED),
    *each("--mmap-warmup --no-data-sharding --dataloader-fast-cache-load --dataloader-defer-npy-index-mmap "
          "--renormalize-blend-weights", INDEXES),
    *each("--mid-level-dataset-surplus --num-dataset-builder-threads --per-dataset-sequences-path "
          "--object-storage-cache-path --s3-cache-path", INDEXES, True),
    *off("manual-gc-eval", NO_PAUSES),
    *each("--empty-unused-memory-level --train-sync-interval", NO_PAUSES, True),
    no_meaning("--spec", "there is one model definition", True, several=True),
    *each("--enable-experimental --disable-msc --enable-msc --test-mode", "there is nothing that it would turn on"),
]  # fmt: skip
