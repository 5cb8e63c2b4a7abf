"""What a DeepSpeed JSON file says, as flags."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

from paddock.config.foreign.account import Account, flatten
from paddock.config.plain_yaml import LARGEST
from paddock.errors import ConfigError, shown
from paddock.files import read_regular

STAGES = {0: "none", 1: "optimizer", 2: "optimizer", 3: "parameters"}
SCHEDULES = {"WarmupLR": "constant", "WarmupDecayLR": "linear", "WarmupCosineLR": "cosine"}
OPTIMIZERS = {"adam": "adamw", "adamw": "adamw", "sgd": "sgd"}
"""DeepSpeed's Adam decays weights by themselves, unless adam_w_mode is false."""


LARGEST_POWER = 64
"""Of two, where a loss scale begins."""


def flags_of_file(path: Path) -> list[str]:
    """Paddock's flags for the fields that the file says."""
    account = convert(_read(path))
    account.check(path.name)
    flags: list[str] = []
    for section, fields in account.recipe.items():
        for name, value in fields.items():
            words = [str(part) for part in value] if isinstance(value, list) else [str(value)]
            flags += [f"--{section}.{name.replace('_', '-')}", *words]
    return flags


def _read(path: Path) -> dict[str, Any]:
    try:
        values = json.loads(read_regular(path, LARGEST).decode())
    except OSError as error:
        raise ConfigError(f"{shown(path)} cannot be read", why=error.strerror or str(error)) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{shown(path)} is not valid JSON", why=shown(error)) from None
    if not isinstance(values, dict):
        raise ConfigError(f"{shown(path)} is not a DeepSpeed config", why="it has no keys")
    return values


def convert(values: dict[str, Any]) -> Account:
    """The account of a file; "auto" is what others say."""
    account = Account("DeepSpeed", flatten(values))
    for key, value in account.values.items():
        if value == "auto":
            account.idle(key, "the recipe says it")
    for key, field in (
        ("train_batch_size", "batch.global"),
        ("train_micro_batch_size_per_gpu", "batch.micro"),
        ("gradient_accumulation_steps", "batch.accumulation"),
        ("gradient_clipping", "optimizer.clip"),
        ("steps_per_print", "log.every"),
    ):
        if key not in account.lines:
            account.move(key, field, None if account.get(key) == 0.0 else account.get(key))
    _batch(account)
    _sharding(account)
    _precision(account)
    _optimizer(account)
    _elsewhere(account)
    account.explain_rest(IDLE)
    return account


def _batch(account: Account) -> None:
    """Two of the three are enough, and what is not said follows."""
    said = account.recipe.get("batch", {})
    if said:
        account.recipe["batch"] = {name: said.get(name) for name in ("micro", "global", "accumulation")}


def _sharding(account: Account) -> None:
    stage = "zero_optimization.stage"
    if stage in account and stage not in account.lines:
        account.move(stage, "parallel.shard", STAGES.get(account.whole(stage), "none"))
    for key in account.values:
        if key.startswith("zero_optimization.offload") and key.endswith(".device"):
            account.must_be(key, ("none",), "nothing is moved to the host")


def _precision(account: Account) -> None:
    for name, compute in (("fp16", "float16"), ("bf16", "bfloat16"), ("bfloat16", "bfloat16")):
        if account.get(f"{name}.enabled") is True:
            account.move(f"{name}.enabled", "precision.compute", compute)
        account.idle(f"{name}.enabled", "the recipe says in what is computed")
    if account.get("fp16.enabled") is True:
        if account.get("fp16.loss_scale"):
            account.move("fp16.loss_scale", "precision.loss_scale")
        power = account.whole("fp16.initial_scale_power", 16)
        if power > LARGEST_POWER:
            account.refuse("fp16.initial_scale_power", f"a scale is at most 2 to the power of {LARGEST_POWER}")
        else:
            account.move("fp16.initial_scale_power", "precision.initial_scale", 2.0**power)
        account.move("fp16.loss_scale_window", "precision.scale_window")
    if account.get("torch_autocast.enabled") is True:
        names = {"bfloat16": "bfloat16", "bf16": "bfloat16", "float16": "float16", "fp16": "float16"}
        name = account.word("torch_autocast.dtype", "bfloat16").removeprefix("torch.")
        if name in names:
            account.move("torch_autocast.enabled", "precision.compute", names[name])
        else:
            account.refuse("torch_autocast.dtype", f"it is one of {', '.join(names)}")


def _elsewhere(account: Account) -> None:
    """Whole sections of what is not here, which files have switched off; and what has another name."""
    for section, why in NOT_HERE.items():
        account.must_be(f"{section}.enabled", (False,), why)
        if account.get(f"{section}.enabled") is False:
            for key in account.values:
                if key.startswith(f"{section}."):
                    account.idle(key, why)
    account.must_be("sparse_gradients", (False,), "gradients of embeddings are whole")
    account.must_be("data_types.grad_accum_dtype", ("fp32", None), "gradients are summed in float32")
    account.must_be("data_types.params_dtype", ("fp32", None), "weights are in float32")
    size = "tensor_parallel.autotp_size"
    if size in account and size not in account.lines:
        account.move(size, "parallel.tensor", max(account.whole(size), 1))


def _optimizer(account: Account) -> None:
    kind, section = "optimizer.type", "optimizer.params"
    if kind in account:
        name = account.word(kind).lower()
        if name in OPTIMIZERS:
            account.move(kind, "optimizer.name", OPTIMIZERS[name])
        else:
            account.refuse(kind, "there is no such optimizer here: Adam, AdamW and SGD")
    for name in ("lr", "betas", "eps", "weight_decay", "momentum"):
        if f"{section}.{name}" not in account.lines:
            account.move(f"{section}.{name}", f"optimizer.{name}")
    account.must_be(f"{section}.adam_w_mode", (True,), "adamw is that")
    schedule, parameters = "scheduler.type", "scheduler.params"
    if schedule not in account:
        return
    name = account.word(schedule)
    if name not in SCHEDULES:
        account.refuse(schedule, f"there is no such schedule here: {', '.join(SCHEDULES)}")
        return
    account.move(schedule, "schedule.name", SCHEDULES[name])
    for theirs, ours in (
        ("warmup_num_steps", "schedule.warmup"),
        ("total_num_steps", "schedule.decay_steps"),
        ("warmup_max_lr", "optimizer.lr"),
    ):
        if f"{parameters}.{theirs}" not in account.lines:
            account.move(f"{parameters}.{theirs}", ours)
    account.must_be(f"{parameters}.warmup_min_lr", (0, 0.0, "auto"), "the warm-up begins at nothing")
    account.must_be(f"{parameters}.warmup_type", ("linear", "auto"), "the warm-up is a line")
    account.must_be(f"{parameters}.warmup_min_ratio", (0, 0.0, "auto"), "the warm-up begins at nothing")
    lowest, peak = f"{parameters}.cos_min_ratio", account.recipe.get("optimizer", {}).get("lr")
    if lowest in account and lowest not in account.lines:
        if isinstance(peak, int | float):
            account.move(lowest, "schedule.min_lr", account.number(lowest) * peak)
        else:
            account.refuse(lowest, "it is a part of the learning rate, which the file does not say: --schedule.min-lr")


NOT_HERE = {
    "amp": "mixed precision is fp16 or bf16 here",
    "curriculum_learning": "samples are as long from the first step on",
    "data_efficiency": "samples are as long from the first step on",
    "autotuning": "settings are not searched for by trying them",
    "elasticity": "the global batch stays the same: --nnodes MIN:MAX",
    "eigenvalue": "there is no compression here",
    "progressive_layer_drop": "all layers are trained",
    "hybrid_engine": "there is no reinforcement learning here",
}
"""Sections of DeepSpeed's that are nothing here."""
IDLE = {
    "torch_autocast.*": "precision.compute says in what is computed",
    "tensor_parallel.*": "parallel.tensor cuts a model by its own plan",
    "zero_optimization.*": "traffic, not results: torch's engine chooses",
    "zero_allow_untested_optimizer": "all of them are tested with all stages",
    "zero_force_ds_cpu_optimizer": "nothing is moved to the host",
    "fp16.*": "the loss scale halves at once, and doubles after precision.scale_window good steps",
    "bf16.*": "sums are in float32",
    "wall_clock_breakdown": "times are always in metrics.jsonl",
    "prescale_gradients": "the loss is the mean over the tokens of the global batch",
    "gradient_predivide_factor": "the loss is the mean over the tokens of the global batch",
    "communication_data_type": "gradients are exchanged in float32",
    "tensorboard.*": "--log.tensorboard writes event files",
    "wandb.*": "metrics.jsonl has all metrics",
    "csv_monitor.*": "metrics.jsonl has all metrics",
    "flops_profiler.*": "utilisation is always in metrics.jsonl",
    "activation_checkpointing.*": "--parallel.recompute says what is computed again",
    "comms_logger.*": "a profiler can be a callback (--train.callbacks)",
    "aio.*": "nothing is moved to the host",
    "dump_state": "paddock check config shows it",
    "bfloat16.*": "sums are in float32",
    "memory_breakdown": "the card of a run says what its memory is for",
    "comet.*": "metrics.jsonl has all metrics",
    "monitor_config.*": "metrics.jsonl has all metrics",
    "checkpoint.*": "every checkpoint loads in every layout",
    "load_universal_checkpoint": "every checkpoint loads in every layout",
    "gradient_allreduce_op": "the loss is the mean over the tokens of the global batch",
    "disable_allgather": "traffic, not results: torch's engine chooses",
    "seq_parallel_communication_data_type": "gradients are exchanged in float32",
    "pipeline.*": "--parallel.pipeline and --parallel.schedule say what a pipeline is",
    "optimizer.params.torch_adam": "the device decides: its fused one, where it has that",
    "optimizer.params.fused": "the device decides: its fused one, where it has that",
    "optimizer.legacy_fusion": "the device decides: its fused one, where it has that",
    "log_level": "metrics are a live bar on a terminal and plain lines elsewhere",
}
"""Keys that need no place in a recipe, and what is here instead."""
