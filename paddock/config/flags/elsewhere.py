"""Flags and keys of DeepSpeed, LiBai and MindFormers. `tables.py` puts the tables together."""

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
    rename,
    switch,
)
from paddock.config.flags.megatron import ANY_LAYOUT, LESS_MEMORY, ON_HOST, OVERLAP, PROFILER
from paddock.errors import bad_value

DEEPSPEED_CONFIG = "--deepspeed_config"
CONFIG_FLAGS = ("--config-file", "--config")
"""LiBai's and MindFormers' way to name a config, which is a RECIPE here."""


def _truth(flags: str, field: str, yes: str, no: str) -> Alias:
    return choice(flags, field, {"true": yes, "false": no, "1": yes, "0": no})


def _zero_stage(value: str) -> list[str]:
    stages = {"0": "none", "1": "optimizer", "2": "optimizer", "3": "parameters"}
    if value not in stages:
        raise bad_value("--zero-stage", value, "there is no such stage", "0, 1, 2 or 3")
    return ["--parallel.shard", stages[value]]


DEEPSPEED = [
    keep(DEEPSPEED_CONFIG, "the fields that a DeepSpeed JSON file means: batch, ZeRO stage, precision, optimizer"),
    Alias(("--zero-stage", "--zero_stage"), "--parallel.shard: 1 and 2 optimizer, 3 parameters", _zero_stage),
    switch("--deepspeed-activation-checkpointing", "--parallel.recompute", "full"),
    rename("--num_gpus --num_accelerators", "nproc-per-node"),
    rename("--num_nodes", "nnodes"),
    no_meaning("--deepspeed", "one engine does data, tensor and pipeline parallelism and ZeRO"),
    no_meaning("--no-pipeline-parallel", "--parallel.pipeline 1 is the default"),
    switch("--gradient-checkpointing --gradient_checkpointing", "--parallel.recompute", "full"),
    *impossible("--cpu-offload --offload-optimizer --offload --offload-param", ON_HOST, LESS_MEMORY),
    *impossible("--include --exclude -i", "processes are counted, not listed", "--nproc-per-node N", True),
    *impossible("--hostfile -H", "a verb of its own starts a command on every host of a list",
               "paddock launch hostfile FILE -- train RECIPE", True),
    *impossible("--launcher", "a verb of its own starts a command on a cluster", "paddock launch --help", True),
    *impossible("--autotuning", "settings are not searched for by trying them",
               "--dry-run --world N shows what a layout costs", True),
    rename("--min_elastic_nodes", "min-nodes"),
    rename("--max_elastic_nodes", "nnodes"),
    no_meaning("--elastic_training --enable_elastic_training",
               "a job with --nnodes MIN:MAX goes on as machines leave and come"),
    *each("--no_ssh --no_ssh_check --force_multi --no_local_rank --no_python --save_pid",
          "every machine starts its own processes; paddock launch starts all machines"),
    *each("--launcher_args --ssh_port --venv_script", "paddock launch hostfile --help says how hosts are reached",
          True),
    *each("--enable_each_rank_log", "log.txt in the run directory has what a run says", True),
    *each("--bind_cores_to_rank", "each process takes its share of the cores as threads (--threads)"),
    *impossible("--bind_core_list", "a process takes threads, and no cores by number", "--threads N",
               True),
    *each("-q --quiet", "machine 0 alone says what happens"),
    *each("--log_level", "machine 0 alone says what happens", True),
    *each("--zero-reduce-scatter --zero-contigious-gradients --contigious-checkpointing --synchronize-each-layer",
          OVERLAP),
    *each("--zero-allgather-bucket-size --zero-reduce-bucket-size", OVERLAP, True),
    *each("--profile-backward", PROFILER),
    *each("--partition-activations", "--parallel.sequence cuts what is kept along the sequence"),
    *impossible("--train-tokens", "the length of a run is in steps, samples or epochs", "--train-samples N", True),
    *none_of("--curriculum-*", "samples are as long from the first step on"),
    *impossible("--cpu-optimizer --cpu_torch_adam --checkpoint-in-cpu --use-pin-memory", ON_HOST, LESS_MEMORY),
    *impossible("--remote-device", ON_HOST, LESS_MEMORY, True),
    *each("--universal-checkpoint", ANY_LAYOUT),
    *each("--deepscale", "one engine does data, tensor and pipeline parallelism and ZeRO"),
    *each("--deepspeed_mpi", "a job under SLURM or torchrun is known by its environment"),
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
    *built_in("--run_mode", "train finetune", "the verb says it: paddock train, evaluate, predict or generate"),
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
