"""More flags and keys of other systems: the rest of Megatron-LM's common ones, torchtitan's, DeepSpeed's, LiBai's and
MindFormers'. `flags.py` puts the tables together."""

from __future__ import annotations

from paddock.config.alias import Alias, built_in, impossible, keep, no_meaning, rename, switch
from paddock.errors import bad_value, did_you_mean

TOKENIZER_FLAGS = ("--tokenizer-type", "--vocab-file", "--merge-file", "--tokenizer-model")
"""Those that say together which tokenizer it is."""
POSITIONS = "--max-position-embeddings"
DEEPSPEED_CONFIG = "--deepspeed_config"
CONFIG_FLAGS = ("--config-file", "--config")
"""LiBai's and MindFormers' way to name a config, which is a RECIPE here."""
FUSION = "fusion is the compiler's choice; --train.compile off turns it off"
OVERLAP = "exchanges overlap with computation where torch's engine does it"
FLOAT32 = "norms, softmaxes and sums of gradients are in float32 where it matters"
PROFILER = "a profiler can be a callback (--train.callbacks)"
NO_PAUSES = "the loop has no such pauses and copies"
LOGGED = "it is always measured, and in metrics.jsonl"
SHAPES = "the model families here are GPT-2, BERT, T5, mT5 and ResNet"


def _choice(flags: str, field: str, values: dict[str, str]) -> Alias:
    """Another name of a field, whose values have other names too."""
    name = flags.split()[0]

    def convert(value: str) -> list[str]:
        if value.lower() not in values:
            raise bad_value(name, value, "it is not known", did_you_mean(value, list(values)))
        return [f"--{field}", values[value.lower()]]

    return Alias(tuple(flags.split()), f"--{field}", convert)


def _one(flags: str, why: str) -> Alias:
    """A size that is only known as one."""
    return built_in(flags, "1 -1", why)


def _truth(flags: str, field: str, yes: str, no: str) -> Alias:
    return _choice(flags, field, {"true": yes, "false": no, "1": yes, "0": no})


def _zero_stage(value: str) -> list[str]:
    stages = {"0": "none", "1": "optimizer", "2": "optimizer", "3": "parameters"}
    if value not in stages:
        raise bad_value("--zero-stage", value, "there is no such stage", "0, 1, 2 or 3")
    return ["--parallel.shard", stages[value]]


def _shard_degree(value: str) -> list[str]:
    """torchtitan's degree of sharding: 1 is none, any other and -1 (all that are left) is FSDP."""
    return ["--parallel.shard", "none" if value == "1" else "parameters"]


def _each(flags: str, note: str, takes_value: bool = False) -> list[Alias]:
    return [no_meaning(flag, note, takes_value) for flag in flags.split()]


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
    _choice("--data-parallel-sharding-strategy", "parallel.shard",
            {"no_shard": "none", "optim": "optimizer", "optim_grads": "optimizer", "optim_grads_params": "parameters"}),
    switch("--recompute-activations", "--parallel.recompute", "selective"),
    _choice("--recompute-granularity", "parallel.recompute", {"full": "full", "selective": "selective"}),
    *_each("--recompute-method --recompute-num-layers", "every block is computed again, or none", True),
    Alias(("--tensorboard-dir",), "--log.tensorboard, in the run directory", lambda _: ["--log.tensorboard"], note=(
        "event files are in the run directory, under tensorboard/")),
    rename("--num-workers", "data.workers"),
    rename("--data-cache-path", "data.cache"),
    switch("--mock-data", "--data.source", "synthetic"),
    switch("--async-save", "--checkpoint.asynchronous"),
    switch("--finetune", "--checkpoint.weights-only"),
    Alias(("--no-load-optim",), "--checkpoint.weights-only", lambda _: ["--checkpoint.weights-only"], False, (
        "weights alone are taken, and the run begins at its first step")),
    built_in("--position-embedding-type", "learned_absolute", "a GPT-2 learns its positions"),
    built_in("--normalization", "LayerNorm", "a GPT-2 has layer norms"),
    built_in("--data-impl", "mmap infer", "corpora are mapped into memory"),
    built_in("--dataloader-type", "single", "samples are shuffled once an epoch, by the seed"),
    _one("--context-parallel-size", "attention is not cut along the sequence"),
    _one("--expert-model-parallel-size --num-experts", "there are no experts"),
    impossible("--swiglu --group-query-attention --disable-bias-linear", SHAPES, "leave it out, or bring the model: "
               "paddock zoo new"),
    impossible("--untie-embeddings-and-output-weights", "a GPT-2's head is its token embedding", "leave it out; a T5 "
               "takes --model.no-tied"),
    impossible("--num-query-groups --rotary-percent --rotary-base", SHAPES, "leave it out", True),
    impossible("--rampup-batch-size", "the global batch stays the same", "leave it out", True),
    impossible("--lr-warmup-samples --lr-decay-samples", "a schedule counts steps, or epochs", "--lr-warmup-iters and "
               "--lr-decay-iters", True),
    impossible("--train-data-path --valid-data-path --test-data-path", "a corpus is split by its documents",
               "--data-path PREFIX --split 949,50,1", True),
    impossible("--fp8-format --fp8", "no device here trains in eight bits", "--bf16", True),
    *_each("--use-flash-attn --use-fused-rmsnorm --apply-layernorm-1p", "fused attention and norms are always on"),
    *_each("--attention-backend --transformer-impl", "fused attention is always on", True),
    *_each("--no-masked-softmax-fusion --no-rope-fusion --no-gradient-accumulation-fusion --no-persist-layer-norm "
           "--bias-gelu-fusion --no-bias-swiglu-fusion", FUSION),
    *_each("--overlap-grad-reduce --overlap-param-gather --tp-comm-overlap --no-overlap-p2p-communication "
           "--no-async-tensor-model-parallel-allreduce --no-async-tensor-parallel-allreduce "
           "--use-ring-exchange-p2p --no-contiguous-buffers-in-local-ddp", OVERLAP),
    *_each("--accumulate-allreduce-grads-in-fp32 --attention-softmax-in-fp32 --fp32-residual-connection", FLOAT32),
    *_each("--apply-query-key-layer-scaling", "queries and keys are never scaled by layer"),
    *_each("--use-mcore-models --use-legacy-models --use-cpu-initialization --deprecated-use-mcore-models",
           "there is one model definition, and weights depend on seed and name alone"),
    *_each("--DDP-impl --distributed-backend --ckpt-format --dist-ckpt-format --dist-ckpt-strictness",
           "there is one kind: the device and torch choose", True),
    *_each("--use-dist-ckpt --ckpt-fully-parallel-save --ckpt-fully-parallel-load --ckpt-assume-constant-structure",
           "every checkpoint loads in every layout"),
    *_each("--no-save-optim --no-save-rng", "a checkpoint is whole, so that a run can go on"),
    *_each("--no-load-rng", "dropout follows from seed and step, and no state is loaded"),
    *_each("--override-opt_param-scheduler --use-checkpoint-opt_param-scheduler --use-checkpoint-args "
           "--override-opt-param-scheduler --use-checkpoint-opt-param-scheduler",
           "what the recipe and the flags say counts, and what differs from the checkpoint is shown"),
    *_each("--distributed-timeout-minutes", "a process that ends or hangs is found by itself", True),
    *_each("--exit-duration-in-mins --exit-interval", "a run ends after its steps; a signal saves and stops it", True),
    *_each("--exit-signal-handler", "a signal always saves and stops a run"),
    *_each("--log-params-norm --log-num-zeros-in-grad", "the norm of the gradient is recorded, these are not"),
    *_each("--log-throughput --log-timers-to-tensorboard "
           "--log-validation-ppl-to-tensorboard --log-memory-to-tensorboard --log-batch-size-to-tensorboard "
           "--log-world-size-to-tensorboard --no-log-learnig-rate-to-tensorboard --log-progress", LOGGED),
    *_each("--timing-log-level --timing-log-option --tensorboard-log-interval --tensorboard-queue-size",
           "metrics.jsonl has all metrics", True),
    *_each("--wandb-project --wandb-exp-name --wandb-save-dir --wandb-entity",
           "metrics.jsonl has all metrics; --log.track wandb sends them there, too", True),
    *_each("--min-loss-scale --hysteresis", "the loss scale halves at once, as far as it must", True),
    *_each("--check-for-nan-in-loss-and-grad --no-check-for-nan-in-loss-and-grad", "it is always checked, at no cost"),
    *_each("--calculate-per-token-loss", "the loss is always the mean over the tokens of the global batch"),
    *_each("--bert-no-binary-head", "a BERT is trained on masked tokens alone"),
    *_each("--manual-gc --no-create-attention-mask-in-dataloader --no-mmap-bin-files", NO_PAUSES),
    *_each("--manual-gc-interval", NO_PAUSES, True),
    *_each("--short-seq-prob", "every sample has the whole length", True),
    *_each("--local-rank --local_rank", "a process learns its place from the launcher", True),
    built_in("--weight-decay-incr-style", "constant", "weight decay stays the same"),
    *_each("--start-weight-decay --end-weight-decay", "weight decay stays the same (--weight-decay)", True),
    *_each("--microbatch-group-size-per-virtual-pipeline-stage", "the schedule says it", True),
]  # fmt: skip

TORCHTITAN = [
    rename("--training.steps", "train.steps"),
    rename("--training.seq_len", "data.sequence-length"),
    rename("--training.local_batch_size --training.batch_size", "batch.micro"),
    rename("--training.global_batch_size", "batch.global"),
    rename("--training.max_norm", "optimizer.clip"),
    rename("--training.dataset_path", "data.path"),
    rename("--training.seed --debug.seed", "train.seed"),
    _choice("--training.mixed_precision_param", "precision.compute", {"bfloat16": "bfloat16", "float32": "float32"}),
    rename("--parallelism.tensor_parallel_degree", "parallel.tensor"),
    rename("--parallelism.pipeline_parallel_degree", "parallel.pipeline"),
    rename("--parallelism.pipeline_parallel_microbatch_size", "batch.micro"),
    Alias(("--parallelism.data_parallel_shard_degree",), "--parallel.shard parameters; 1 is none", _shard_degree),
    no_meaning("--parallelism.data_parallel_replicate_degree", "replicas follow from the number of processes", True),
    _choice(
        "--parallelism.pipeline_parallel_schedule",
        "parallel.schedule",
        {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "loopedbfs": "looped-bfs",
         "interleavedzerobubble": "zero-bubble", "zbvzerobubble": "zbv", "dualpipev": "dualpipev"},
    ),
    _one("--parallelism.context_parallel_degree", "attention is not cut along the sequence"),
    _one("--parallelism.expert_parallel_degree", "there are no experts"),
    no_meaning("--parallelism.enable_async_tensor_parallel", OVERLAP),
    _choice("--activation_checkpoint.mode", "parallel.recompute",
            {"none": "none", "full": "full", "selective": "selective"}),
    no_meaning("--activation_checkpoint.selective_ac_option", "selective is attention and activation functions", True),
    switch("--compile.enable --training.compile", "--train.compile", "on"),
    rename("--lr_scheduler.warmup_steps", "schedule.warmup"),
    _choice("--lr_scheduler.decay_type", "schedule.name", {"linear": "linear", "cosine": "cosine"}),
    impossible("--lr_scheduler.decay_ratio", "a decay begins where the warm-up ends", "--schedule.decay-steps", True),
    rename("--checkpoint.interval", "checkpoint.every"),
    rename("--checkpoint.keep_latest_k", "checkpoint.keep"),
    rename("--checkpoint.initial_load_path", "checkpoint.load"),
    switch("--checkpoint.initial_load_model_only", "--checkpoint.weights-only"),
    _choice("--checkpoint.async_mode", "checkpoint.asynchronous",
            {"disabled": "false", "async": "true", "async_with_pinned_mem": "true"}),
    *_each("--checkpoint.enable --checkpoint.enable_checkpoint", "checkpoints are always written"),
    rename("--metrics.log_freq", "log.every"),
    switch("--metrics.enable_tensorboard", "--log.tensorboard"),
    no_meaning("--metrics.enable_wandb", "metrics.jsonl has all metrics"),
    rename("--job.dump_folder", "run-dir"),
    Alias(("--model.tokenizer_path", "--model.hf_assets_path"), "--tokenizer.path, of a folder",
          lambda value: ["--tokenizer.kind", "folder", "--tokenizer.path", value]),
    *_each("--job.description --model.flavor", "the RECIPE says which model it is", True),
    no_meaning("--profiling.profile_freq", PROFILER, True),
    *_each("--profiling.enable_profiling --profiling.enable_memory_snapshot", PROFILER),
    rename("--validation.freq", "evaluate.every"),
    rename("--validation.steps", "evaluate.batches"),
]  # fmt: skip
"""Its `--optimizer.lr`, `--optimizer.name` and `--optimizer.eps` are called so here too."""

DEEPSPEED = [
    keep(DEEPSPEED_CONFIG, "the fields that a DeepSpeed JSON file means: batch, ZeRO stage, precision, optimizer"),
    Alias(("--zero-stage", "--zero_stage"), "--parallel.shard: 1 and 2 optimizer, 3 parameters", _zero_stage),
    switch("--deepspeed-activation-checkpointing", "--parallel.recompute", "full"),
    rename("--num_gpus", "nproc-per-node"),
    rename("--num_nodes", "nnodes"),
    no_meaning("--deepspeed", "one engine does data, tensor and pipeline parallelism and ZeRO"),
    no_meaning("--no-pipeline-parallel", "--parallel.pipeline 1 is the default"),
    impossible("--cpu-offload --offload-optimizer", "nothing is moved to the host", "--zero-stage 3 and "
               "--parallel.recompute full take memory from a device"),
    impossible("--include --exclude", "processes are counted, not listed", "--nproc-per-node N", True),
]  # fmt: skip

LIBAI = [
    keep("--config-file", "the RECIPE"),
    switch("--eval-only", "--evaluate-only"),
    switch("--resume", "--checkpoint.load", "auto"),
    switch("--fast-dev-run", "--train.steps", "20", "--evaluate.every", "10", "--log.every", "1"),
    rename("train.dist.tensor_parallel_size", "parallel.tensor"),
    rename("train.dist.pipeline_parallel_size", "parallel.pipeline"),
    no_meaning("train.dist.data_parallel_size", "it follows from the number of processes, as there", True),
    no_meaning("train.dist.pipeline_num_layers", "the layers are counted", True),
    rename("train.dist.custom_pipeline_stage_id", "parallel.stages"),
    rename("train.train_micro_batch_size", "batch.micro"),
    rename("train.global_batch_size", "batch.global"),
    rename("train.num_accumulation_steps", "batch.accumulation"),
    rename("train.train_iter", "train.steps"),
    rename("train.train_epoch", "train.epochs"),
    rename("train.warmup_ratio", "schedule.warmup"),
    rename("train.log_period", "log.every"),
    rename("train.output_dir", "run-dir"),
    rename("train.load_weight", "checkpoint.load"),
    rename("train.checkpointer.period", "checkpoint.every"),
    rename("train.checkpointer.max_to_keep", "checkpoint.keep"),
    rename("train.evaluation.eval_period", "evaluate.every"),
    rename("train.evaluation.eval_iter", "evaluate.batches"),
    _truth("train.amp.enabled", "precision.compute", "float16", "float32"),
    _truth("train.activation_checkpoint.enabled", "parallel.recompute", "full", "none"),
    Alias(("train.zero_optimization.stage",), "--parallel.shard: 1 and 2 optimizer, 3 parameters", _zero_stage),
    _truth("train.zero_optimization.enabled", "parallel.shard", "optimizer", "none"),
    rename("model.cfg.hidden_layers", "model.layers"),
    rename("model.cfg.hidden_size", "model.hidden"),
    rename("model.cfg.num_attention_heads", "model.heads"),
    rename("model.cfg.vocab_size", "model.vocab"),
    rename("model.cfg.pretrained_model_path", "checkpoint.load"),
    rename("optim.lr", "optimizer.lr"),
    rename("optim.weight_decay", "optimizer.weight-decay"),
    rename("dataloader.train.dataset[0].data_prefix", "data.path"),
    no_meaning("train.rdma_enabled", "the collective library picks the transport", True),
    no_meaning("train.input_placement_device", "the device decides how data comes to it", True),
    no_meaning("graph.enabled", "blocks are compiled where it helps (--train.compile)", True),
]
"""Keys of its configs, behind any recipe: `train.dist.tensor_parallel_size=2`. Its configs themselves are read too."""

MINDFORMERS = [
    keep("--config", "the RECIPE"),
    no_meaning("--options", "KEY=VALUE behind a recipe says a field, with or without it"),
    rename("--dataset_dir", "data.path"),
    Alias(
        ("--load_checkpoint",),
        "--checkpoint.load, with --checkpoint.weights-only",
        lambda value: ["--checkpoint.load", value, "--checkpoint.weights-only"],
    ),
    built_in("--run_mode", "train finetune", "the verb says it: paddock train, evaluate, predict or generate"),
    no_meaning("--use_parallel", "the number of processes says it (--nproc-per-node)", True),
    no_meaning("--device_target", "the device that is there is taken (--device names another)", True),
    no_meaning("--device_id", "each process takes its own device (--device says which kind)", True),
    no_meaning("--sink_mode", "the loop is one", True),
    no_meaning("--mode", "--train.compile says what is compiled", True),
    rename("parallel_config.data_parallel", "parallel.data"),
    rename("parallel_config.model_parallel", "parallel.tensor"),
    rename("parallel_config.pipeline_stage", "parallel.pipeline"),
    rename("parallel_config.micro_batch_num", "batch.accumulation"),
    _truth("parallel_config.optimizer_shard", "parallel.shard", "optimizer", "none"),
    _truth("parallel_config.use_seq_parallel", "parallel.sequence", "true", "false"),
    _truth("recompute_config.recompute", "parallel.recompute", "full", "none"),
    rename("runner_config.epochs", "train.epochs"),
    rename("runner_config.batch_size", "batch.micro"),
    no_meaning("parallel_config.vocab_emb_dp", "embedding and head are split; the loss is the same", True),
    no_meaning("parallel_config.gradient_aggregation_group", "gradients are exchanged unit by unit", True),
]
"""Flags of its run_mindformer.py, and keys of its configs, behind any recipe. Its configs themselves are read too."""
