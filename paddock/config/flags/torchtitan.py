"""torchtitan's flags: each is mapped, told what happens instead, or refused with the reason."""

from __future__ import annotations

from paddock.config.flags.alias import (
    Alias,
    any_of,
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
from paddock.config.flags.megatron import (
    BALANCED,
    CHECKPOINT_STEP,
    EIGHT_BITS,
    EVENT_FILES,
    FOUND,
    IN_METRICS,
    KEPT_IN_FLOAT32,
    LESS_MEMORY,
    NO_PAUSES,
    ON_HOST,
    ONE_SEQUENCE,
    OVERLAP,
    PROFILER,
    REPEATED,
    SELECTIVE,
    SPLIT,
    STAGES,
    WHOLE,
)

DATASET = "--training.dataset"
TOKENS_EACH = "--training.num_tokens_per_microbatch_per_dp_rank"
TOKENS_ALL = "--training.num_tokens_per_train_step"
LOWEST = "--lr_scheduler.min_lr_factor"
ALL_OF_IT = "--checkpoint.no_initial_load_model_only"
ALWAYS_SAVED = "checkpoints are always written, every --checkpoint.every steps and at the end"


def _shard_degree(value: str) -> list[str]:
    """torchtitan's degree of sharding: 1 is none, any other and -1 (all that are left) is FSDP."""
    return ["--parallel.shard", "none" if value == "1" else "parameters"]


def _all_if_negative(value: str) -> list[str]:
    return ["--evaluate.batches", "None" if value == "-1" else value]


TORCHTITAN = [
    rename("--training.steps", "train.steps"),
    rename("--training.seq_len --training.max_context_length", "data.sequence-length"),
    rename("--training.local_batch_size --training.batch_size", "batch.micro"),
    rename("--training.global_batch_size", "batch.global"),
    keep(TOKENS_EACH, "--batch.micro, as so many tokens: a multiple of the sequence"),
    Alias((TOKENS_ALL,), "--batch.global, as so many tokens; -1 is what the layout makes of --batch.micro",
          lambda value: ["--batch.global", "None"] if value == "-1" else [TOKENS_ALL, value]),
    rename("--training.max_norm", "optimizer.clip"),
    Alias(("--training.dataset_path", "--dataloader.dataset_path"), "--data.path",
          lambda value: ["--data.path", value]),
    keep(f"{DATASET} --dataloader.dataset", "nothing beside --training.dataset_path, which says what is read"),
    rename("--training.seed --debug.seed", "train.seed"),
    choice("--training.mixed_precision_param", "precision.compute", {"bfloat16": "bfloat16", "float32": "float32"}),
    rename("--parallelism.tensor_parallel_degree", "parallel.tensor"),
    rename("--parallelism.pipeline_parallel_degree", "parallel.pipeline"),
    rename("--parallelism.pipeline_parallel_microbatch_size", "batch.micro"),
    Alias(("--parallelism.data_parallel_shard_degree",), "--parallel.shard parameters; 1 is none", _shard_degree),
    no_meaning("--parallelism.data_parallel_replicate_degree", "replicas follow from the number of processes", True),
    choice(
        "--parallelism.pipeline_parallel_schedule",
        "parallel.schedule",
        {"1f1b": "1f1b", "gpipe": "gpipe", "interleaved1f1b": "interleaved", "loopedbfs": "looped-bfs",
         "interleavedzerobubble": "zero-bubble", "zbvzerobubble": "zbv", "dualpipev": "dualpipev"},
    ),
    *only_one("--parallelism.context_parallel_degree", ONE_SEQUENCE),
    *only_one("--parallelism.expert_parallel_degree", "there are no experts"),
    no_meaning("--parallelism.enable_async_tensor_parallel", OVERLAP),
    choice("--activation_checkpoint.mode", "parallel.recompute",
            {"none": "none", "full": "full", "selective": "selective"}),
    no_meaning("--activation_checkpoint.selective_ac_option", SELECTIVE, True),
    switch("--compile.enable --training.compile", "--train.compile", "on"),
    rename("--lr_scheduler.warmup_steps", "schedule.warmup"),
    choice("--lr_scheduler.decay_type", "schedule.name", {"linear": "linear", "cosine": "cosine"}),
    *impossible("--lr_scheduler.decay_ratio", "a decay begins where the warm-up ends", "--schedule.decay-steps", True),
    rename("--checkpoint.interval", "checkpoint.every"),
    rename("--checkpoint.keep_latest_k", "checkpoint.keep", lambda value: "None" if value == "0" else value),
    Alias(("--checkpoint.initial_load_path",), "--checkpoint.load, with --checkpoint.weights-only",
          lambda value: ["--checkpoint.load", value, "--checkpoint.weights-only"]),
    no_meaning("--checkpoint.initial_load_model_only", "as there, --checkpoint.initial_load_path takes weights alone"),
    Alias((ALL_OF_IT,), "--checkpoint.initial_load_path without --checkpoint.weights-only", lambda _: [ALL_OF_IT],
          takes_value=False),
    Alias(("--checkpoint.load_step",), "--checkpoint.load, with the checkpoint of that step; -1 is the newest",
          lambda value: [] if value == "-1" else [CHECKPOINT_STEP, value]),
    choice("--checkpoint.async_mode", "checkpoint.asynchronous",
            {"disabled": "false", "async": "true", "async_with_pinned_mem": "true"}),
    *each("--checkpoint.enable --checkpoint.enable_checkpoint", ALWAYS_SAVED),
    rename("--metrics.log_freq", "log.every"),
    switch("--metrics.enable_tensorboard", "--log.tensorboard"),
    switch("--metrics.enable_wandb", "--log.track", "wandb"),
    rename("--job.dump_folder --dump_folder", "run-dir"),
    Alias(("--model.tokenizer_path", "--model.hf_assets_path", "--hf_assets_path"), "--tokenizer.path, of a folder",
          lambda value: ["--tokenizer.kind", "folder", "--tokenizer.path", value]),
    *each("--job.description --model.flavor", "the RECIPE says which model it is", True),
    rename("--validation.freq --validator.freq", "evaluate.every"),
    Alias(("--validation.steps", "--validator.steps"), "--evaluate.batches; -1 is all of them", _all_if_negative),
    *impossible("--job.config_file", "torchtitan's TOML is not read",
                "paddock train RECIPE with its settings as flags, such as --training.steps 100", True),
    *each("--job.print_config --debug.print_config", "--dry-run shows the recipe"),
    *each("--job.save_config_file --debug.save_config_file", "config.yaml in the run directory is the recipe as it ran",
          True),
    *impossible("--job.custom_config_module --job.custom_import", "families, tasks and callbacks come from installed "
               "packages", "leave it out; docs/guides/contributing-a-model.md says how", True),
    *impossible("--model.name --module", "the RECIPE says which model it is", "paddock zoo list shows what there is",
               True),
    *impossible("--model.converters", EIGHT_BITS, "--training.mixed_precision_param bfloat16", True),
    *each("--model.print_after_conversion", "paddock check config shows the model"),
    *each("--optimizer.implementation", "the device decides: its fused one, where it has that", True),
    *each("--optimizer.fused --optimizer.foreach", "the device decides: its fused one, where it has that"),
    *each("--optimizer.early_step_in_backward", "the optimizer steps after the backward pass, once gradients are "
          "clipped"),
    Alias(("--optimizer.beta1",), "the first of --optimizer.betas", lambda value: ["--adam-beta1", value]),
    Alias(("--optimizer.beta2",), "the second of --optimizer.betas", lambda value: ["--adam-beta2", value]),
    keep(f"{LOWEST} --lr_scheduler.lr_min", "--schedule.min-lr, as a part of --optimizer.lr"),
    rename("--lr_scheduler.total_steps", "schedule.decay-steps"),
    rename("--training.warmup_steps", "schedule.warmup"),
    rename("--training.tensor_parallel_degree", "parallel.tensor"),
    rename("--training.pipeline_parallel_degree --experimental.pipeline_parallel_degree", "parallel.pipeline"),
    Alias(("--training.data_parallel_shard_degree",), "--parallel.shard parameters; 1 is none", _shard_degree),
    *each("--training.data_parallel_degree --training.data_parallel_replicate_degree",
          "replicas follow from the number of processes", True),
    *each("--training.deterministic --training.deterministic_warn_only --debug.deterministic "
          "--debug.deterministic_warn_only --debug.batch_invariant", REPEATED),
    *each("--debug.detect_anomaly", "that loss and gradients are finite is always checked"),
    *each("--training.gc_freq", NO_PAUSES, True),
    *each("--training.gc_debug --training.disable_cuda_graphs", NO_PAUSES),
    *built_in("--training.dtype", "float32", KEPT_IN_FLOAT32),
    *built_in("--training.mixed_precision_reduce", "float32", KEPT_IN_FLOAT32),
    *impossible("--training.enable_cpu_offload", ON_HOST, LESS_MEMORY),
    rename("--training.dataloader.num_workers --dataloader.num_workers", "data.workers"),
    *each("--training.dataloader.persistent_workers --training.dataloader.pin_memory --dataloader.persistent_workers "
          "--dataloader.pin_memory", "the loader and the device decide"),
    *each("--training.dataloader.prefetch_factor --dataloader.prefetch_factor", "the loader decides", True),
    *only_one("--parallelism.expert_tensor_parallel_degree --experimental.context_parallel_degree "
             "--training.context_parallel_degree", "neither experts nor a cut sequence are here"),
    *each("--parallelism.context_parallel_rotate_method --parallelism.context_parallel_load_balancer", ONE_SEQUENCE,
          True),
    *each("--debug.moe_force_load_balance --parallelism.pipeline_parallel_expert_parallel_overlap "
          "--parallelism.no_pipeline_parallel_expert_parallel_overlap", "there are no experts"),
    *each("--parallelism.expert_parallel_comm_backend", "there are no experts", True),
    *each("--parallelism.fsdp_reshard_after_forward", OVERLAP, True),
    *each("--parallelism.spmd_backend", "torch's DTensor is used, in whole or in part, as a layout needs", True),
    *each("--parallelism.context_parallel_ptrr_mask_key", ONE_SEQUENCE, True),
    *each("--debug.spmd_typechecking", "every layout is checked before it runs (paddock check config)"),
    *each("--debug.enable_structured_logging --debug.no_enable_structured_logging", IN_METRICS),
    *each("--parallelism.enable_fsdp_symm_mem --experimental.enable_async_tensor_parallel "
          "--compile.enable_async_tensor_parallel", OVERLAP),
    *each("--parallelism.disable_loss_parallel --parallelism.enable_loss_parallel --training.enable_loss_parallel "
          "--training.disable_loss_parallel", "with tensor parallelism the vocabulary is always split"),
    switch("--parallelism.enable_sequence_parallel", "--parallel.sequence"),
    switch("--parallelism.no_enable_sequence_parallel", "--parallel.sequence", "false"),
    rename("--parallelism.num_pp_microbatches", "batch.accumulation"),
    *impossible("--parallelism.module_fqns_per_model_part --parallelism.pipeline_parallel_split_points "
               "--experimental.pipeline_parallel_split_points --parallelism.pipeline_parallel_layers_per_stage",
               "layers are cut by their cost, or as you list them", STAGES, True),
    *each("--parallelism.pipeline_parallel_first_stage_less_layers "
          "--parallelism.pipeline_parallel_last_stage_less_layers", BALANCED, True),
    *impossible("--parallelism.pipeline_parallel_schedule_csv", "schedules are known by name",
               "paddock train RECIPE --help parallel lists them", True),
    *each("--checkpoint.folder", "checkpoints are in the run directory, under checkpoints/ (--run-dir)", True),
    *each("--checkpoint.no_enable --checkpoint.no_enable_checkpoint", ALWAYS_SAVED),
    *each("--checkpoint.initial_load_in_hf --checkpoint.initial_load_in_hf_quantized",
          "a Hugging Face folder is known by its files"),
    *each("--checkpoint.last_save_model_only --checkpoint.no_last_save_model_only --checkpoint.model_weights_only",
          WHOLE),
    *each("--checkpoint.last_save_in_hf", "paddock convert RUN FOLDER --to huggingface writes it afterwards"),
    *built_in("--checkpoint.export_dtype", "float32", "weights are saved as they are trained"),
    *each("--checkpoint.enable_first_step_checkpoint",
          "the first checkpoint is written after --checkpoint.every steps"),
    *impossible("--checkpoint.exclude_from_loading", "all of a checkpoint is taken, or its weights",
               "--checkpoint.weights-only", True),
    *impossible("--checkpoint.create_seed_checkpoint", "first weights depend on seed and name alone, in every layout",
               "leave it out"),
    *impossible("--checkpoint.load_only", ALWAYS_SAVED, "paddock evaluate RUN writes none"),
    *each("--activation_checkpoint.early_stop --activation_checkpoint.preserve_rng_state "
          "--activation_checkpoint.debug", "dropout is the same when a block is computed again"),
    *each("--activation_checkpoint.determinism_check --activation_checkpoint.memory_budget "
          "--activation_checkpoint.per_op_sac_force_recompute_mm_shapes_by_fqns "
          "--activation_checkpoint.force_recompute_mm_shapes_by_fqns", SELECTIVE, True, several=True),
    *each("--compile.components", "blocks are compiled, and the loss is one already", True),
    *built_in("--compile.backend", "inductor", "torch.compile's own backend is used"),
    rename("--comm.train_timeout_seconds", "train.hang-timeout"),
    *each("--comm.init_timeout_seconds --comm.trace_buf_size --comm.save_traces_folder "
          "--comm.save_traces_file_prefix", FOUND, True),
    *built_in("--comm.mode", "default", "--dry-run --world N tries a layout without processes"),
    *impossible("--memory_estimation.enable --memory_estimation.disable_fake_mode",
               "a footprint is estimated by a verb's own flags", "--dry-run --world N"),
    *none_of("--fault_tolerance.*", "a job goes on after a failure by flags of its own",
             "--max-restarts N, or --nnodes MIN:MAX with --rdzv-id NAME"),
    *none_of("--quantize.* --float8.* --mx.*", EIGHT_BITS, "--training.mixed_precision_param bfloat16"),
    *none_of("--experimental.*", "it has no counterpart here"),
    *each("--metrics.disable_color_printing", "NO_COLOR=1 takes the colours away"),
    *each("--metrics.save_tb_folder", EVENT_FILES, True),
    *each("--metrics.save_for_all_ranks --metrics.rank_0_only", "one process writes the metrics of all"),
    any_of("--profiling.*", PROFILER),
    any_of("--profiler.*", PROFILER),
    *each("--validation.enable --validation.enabled --validator.enable",
          "the validation part is measured every --evaluate.every steps"),
    *each("--validation.no_enable --validator.no_enable", "--evaluate.every None makes none but at the end"),
    *impossible("--validation.dataset --validation.dataset_path", SPLIT, "--data.split 949,50,1", True),
    *none_of("--validator.dataloader.*", SPLIT, "--data.split 949,50,1"),
    *none_of("--override.* --optimizer.param_groups.* --optimizer.optimizer_factory_kwargs_by_name.*",
             "settings are fields of the recipe, the same for all layers", "paddock train RECIPE --help lists them"),
    *each("--validation.local_batch_size --validation.seq_len", "validation has the batches of training", True),
]  # fmt: skip
"""Its `--optimizer.lr`, `--optimizer.name` and `--optimizer.eps` are called so here too."""
