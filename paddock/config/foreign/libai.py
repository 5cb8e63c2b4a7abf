"""What a LiBai config means as a recipe, section by section."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

from paddock.config.foreign.account import Account, flatten
from paddock.config.foreign.libai_data import IDLE_OF_DATA, data, tokenizer
from paddock.config.foreign.libai_models import IDLE_OF_MODEL, model
from paddock.config.foreign.overriding import override
from paddock.config.foreign.python_files import read_python
from paddock.config.foreign.python_values import Absent, Symbol, Unread
from paddock.errors import did_you_mean

DEFAULTS: dict[str, dict[str, Any]] = {
    "train": {
        **{"train_micro_batch_size": 32, "train_iter": 10000, "train_epoch": 0, "warmup_ratio": 0, "log_period": 20},
        "checkpointer": {"period": 5000, "max_to_keep": 100},
        "evaluation": {"enabled": True, "eval_period": 5000, "eval_iter": 1e5},
        "scheduler": {"_target_": "libai.scheduler.WarmupCosineLR", "warmup_factor": 0.001, "alpha": 0.01},
        "seed": 1234,
    },
    "optim": {
        **{"_target_": "oneflow.optim.AdamW", "lr": 1e-4, "weight_decay": 0.01, "betas": [0.9, 0.999], "eps": 1e-8},
        "params": {"clip_grad_max_norm": 1.0},
    },
}
"""What LiBai's own `common` configs say, for configs that import them where they are not there."""
ROOTS = ("model", "train", "optim", "dataloader", "tokenization", "graph")
"""What LiBai looks at; a config's other names only help to write it."""
SCHEDULER = "train.scheduler"


def read_libai(path: Path, overrides: list[str]) -> tuple[Account, list[str]]:
    """The account of a config, and what of it was not read."""
    config = read_python(path)
    values = {root: config.names[root] for root in ROOTS if isinstance(config.names.get(root), dict)}
    unread = [str(one) for one in config.unreadable]
    for name in ("train", "optim"):
        if name not in values or isinstance(values[name], Absent):
            values[name] = _over(DEFAULTS[name], values.get(name, {}))
    if isinstance(absent := values.get("model"), Absent):
        values["model"] = {"_target_": absent.name} | absent
    unread += [f"{path.name}: {name} is imported and not there" for name in config.missing]
    override(values, overrides)
    flat = flatten(values)
    known = {key: _plain(value) for key, value in flat.items() if not isinstance(value, Unread)}
    account = convert(known, config.missing)
    _tell_unread(account, {key: value for key, value in flat.items() if isinstance(value, Unread)})
    return account, unread


def convert(values: dict[str, Any], missing: list[str]) -> Account:
    """The account of a config's flattened values; `missing` are the configs that it imports and that are not there."""
    account = Account("LiBai", values)
    if not model(account):
        return account
    tokenizer(account, missing)
    data(account)
    _layout(account)
    _batch(account)
    _length(account)
    _optimizer(account)
    _schedule(account)
    _precision(account)
    _reports(account)
    account.explain_rest(IDLE | IDLE_OF_MODEL | IDLE_OF_DATA)
    return account


def _over(below: dict[str, Any], above: dict[str, Any]) -> dict[str, Any]:
    """A section that is not there, with what the config puts into it."""
    merged = dict(below)
    for key, value in above.items():
        under = merged.get(key)
        merged[key] = _over(under, value) if isinstance(under, dict) and isinstance(value, dict) else value
    return merged


def _plain(value: Any) -> Any:
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return str(value) if isinstance(value, Symbol | Unread) else value


def _tell_unread(account: Account, unread: dict[str, Unread]) -> None:
    """A value that was not read is no matter where the key has no meaning."""
    from fnmatch import fnmatchcase

    for key, value in unread.items():
        account.values[key] = str(value)
        idle = next((why for pattern, why in IDLE.items() if fnmatchcase(key, pattern)), None)
        if idle is not None:
            account.idle(key, idle)
        else:
            account.refuse(key, f"it would have to be executed. Say its value: {key}=VALUE")


def _layout(account: Account) -> None:
    dist = "train.dist"
    account.put("parallel.data", "auto")
    account.idle(f"{dist}.data_parallel_size", "it follows from the number of processes, as there")
    account.move(f"{dist}.tensor_parallel_size", "parallel.tensor")
    account.move(f"{dist}.pipeline_parallel_size", "parallel.pipeline")
    stages = f"{dist}.custom_pipeline_stage_id"
    if account.get(stages) and account.whole(f"{dist}.pipeline_parallel_size") > 1:
        account.move(stages, "parallel.stages")
    account.idle(stages, "stages are balanced by their cost")
    account.idle(f"{dist}.pipeline_num_layers", "the layers are counted, those of encoder and decoder together")
    recompute = account.flag("train.activation_checkpoint.enabled")
    account.move("train.activation_checkpoint.enabled", "parallel.recompute", "full" if recompute else "none")
    enabled, stage = "train.zero_optimization.enabled", "train.zero_optimization.stage"
    shard = ("parameters" if account.whole(stage) == 3 else "optimizer") if account.flag(enabled) else "none"
    account.move(enabled, "parallel.shard", shard)
    account.idle(stage, "parallel.shard says it")


def _batch(account: Account) -> None:
    """As there: two of the three are enough."""
    names = {"micro": "train_micro_batch_size", "global": "global_batch_size", "accumulation": "num_accumulation_steps"}
    for field, name in names.items():
        account.put(f"batch.{field}", None)
        account.move(
            f"train.{name}", f"batch.{field}", note="it follows" if account.get(f"train.{name}") is None else ""
        )
    batch = account.recipe["batch"]
    if batch["global"] is None and batch["accumulation"] is None:
        account.put("batch.accumulation", 1, "no accumulation is said")


def _length(account: Account) -> None:
    steps, epochs = account.number("train.train_iter"), account.number("train.train_epoch")
    account.put("train.steps", None)
    account.put("train.epochs", None)
    if steps > 0:
        account.move("train.train_iter", "train.steps", int(steps))
        note = f"LiBai trains for the longer of the two; these are {int(steps)} steps. --train.epochs {int(epochs)} "
        note += "--train.steps None for the epochs"
        if epochs > 0:
            account.move("train.train_epoch", "train.epochs", None, note=note, near=True)
        account.idle("train.train_epoch", "train_iter says it")
    else:
        account.move("train.train_epoch", "train.epochs", math.ceil(epochs))
        account.idle("train.train_iter", "train_epoch says it")
    account.move("train.seed", "train.seed")
    account.put("checkpoint.load", None)
    if account.get("train.load_weight"):
        account.move("train.load_weight", "checkpoint.load", note="weights alone")
        account.put("checkpoint.weights_only", True)
    account.idle("train.load_weight", "the run begins anew")


def _optimizer(account: Account) -> None:
    kind = account.word("optim._target_", "AdamW").rpartition(".")[2].lower()
    if kind not in ("adamw", "adam", "sgd"):
        account.refuse(
            "optim._target_", f"there is no such optimizer here. {did_you_mean(kind, ['adamw', 'adam', 'sgd'])}"
        )
        return
    account.move("optim._target_", "optimizer.name", kind)
    for name in ("lr", "weight_decay", "betas", "eps", "momentum"):
        account.move(f"optim.{name}", f"optimizer.{name}")
    clip = "optim.params.clip_grad_max_norm"
    account.put("optimizer.clip", None)
    account.move(clip, "optimizer.clip")
    account.must_be("optim.params.clip_grad_norm_type", (2, 2.0, None), "the norm is the usual one")
    for name in ("weight_decay_norm", "weight_decay_bias"):
        account.must_be(f"optim.params.{name}", (0, 0.0, None), "norms and biases have no decay")
    account.must_be("optim.do_bias_correction", (True,), "Adam corrects the bias of its first steps")


def _schedule(account: Account) -> None:
    kind = account.word(f"{SCHEDULER}._target_").rpartition(".")[2]
    rate = account.number("optim.lr", 1e-4)
    known = {
        "WarmupCosineLR": ("cosine", "alpha", rate),
        "WarmupCosineAnnealingLR": ("cosine", "eta_min", 1.0),
        "WarmupPolynomialLR": ("polynomial", "end_learning_rate", 1.0),
        "WarmupExponentialLR": ("constant", "", 1.0),
        "WarmupStepLR": ("step", "", 1.0),
    }
    target = f"{SCHEDULER}._target_"
    if kind not in known:
        account.refuse(target, f"there is no such schedule here. {did_you_mean(kind, [*known])}")
        return
    name, lowest, scale = known[kind]
    warmup = account.number("train.warmup_ratio")
    near = warmup > 0 and name == "cosine"
    note = "there the cosine already goes down during the warm-up, here from its end on" if near else ""
    account.move(target, "schedule.name", name, near=near, note=note)
    account.put("schedule.decay_steps", None)
    account.put("schedule.warmup", float(warmup))
    account.move("train.warmup_ratio", "schedule.warmup", float(warmup))
    least = float(f"{account.number(f'{SCHEDULER}.{lowest}') * scale:.12g}") if lowest else 0.0
    account.put("schedule.min_lr", least)
    account.move(f"{SCHEDULER}.{lowest}", "schedule.min_lr", least)
    if name == "polynomial":
        account.put("schedule.power", account.number(f"{SCHEDULER}.power", 1.0))
        account.move(f"{SCHEDULER}.power", "schedule.power")
        account.must_be(f"{SCHEDULER}.cycle", (False,), "it goes down once")
    if name == "constant":
        account.must_be(f"{SCHEDULER}.gamma", (1, 1.0), "the rate stays")
    if name == "step":
        account.move(f"{SCHEDULER}.step_size", "schedule.step_size")
        account.move(f"{SCHEDULER}.gamma", "schedule.factor")
    if warmup > 0:
        account.must_be(f"{SCHEDULER}.warmup_method", ("linear",), "the warm-up is a line")
    account.idle(f"{SCHEDULER}.warmup_factor", "the warm-up begins at one part of its steps")


def _precision(account: Account) -> None:
    mixed = account.flag("train.amp.enabled")
    account.put("precision.compute", "float16" if mixed else "float32")
    account.move("train.amp.enabled", "precision.compute", "float16" if mixed else "float32")


def _reports(account: Account) -> None:
    account.move("train.log_period", "log.every")
    account.move("train.checkpointer.period", "checkpoint.every")
    account.move("train.checkpointer.max_to_keep", "checkpoint.keep")
    section = "train.evaluation"
    on = account.flag(f"{section}.enabled", True)
    account.put("evaluate.every", account.get(f"{section}.eval_period", 5000) if on else None)
    account.move(f"{section}.eval_period", "evaluate.every", account.recipe["evaluate"]["every"])
    account.idle(f"{section}.enabled", "evaluate.every says it")
    batches = account.number(f"{section}.eval_iter", 1e5)
    account.put("evaluate.batches", max(1, int(batches)))
    account.move(f"{section}.eval_iter", "evaluate.batches", max(1, int(batches)))
    for key, field in (
        ("train.checkpointer.save_model_after_n_epoch", "checkpoint.every"),
        (f"{section}.eval_after_n_epoch", "evaluate.every"),
    ):
        if account.get(key) == 1 and (on or field == "checkpoint.every"):
            account.move(key, field, "epoch")
        else:
            account.must_be(key, (None,), "the number of steps says it")


IDLE = {
    "train.output_dir": "--run-dir names the run directory",
    "train.test_micro_batch_size": "evaluations take batches of the same size",
    "train.evaluation.*": "the task says what is measured, and the best checkpoint is that of the lowest loss",
    "train.input_placement_device": "the device decides how data comes to it",
    "train.rdma_enabled": "the collective library picks the transport",
    "train.nccl_fusion_*": "gradients are exchanged unit by unit",
    "train.samples": "it follows from steps and batch",
    "train.consumed_*": "a run that goes on knows its position in the data",
    "train.start_iter": "a run that goes on knows its position in the data",
    "train.resume": "--checkpoint.load auto goes on",
    "train.train_samples": "train_iter says it, as there",
    "train.scheduler.warmup_iter": "warmup_ratio says it, as there",
    "train.scheduler.max_iter": "train_iter says it, as there",
    "train.scheduler.warmup_method": "there is no warm-up",
    "train.dist.num_*": "the launcher says it",
    "train.dist.device_type": "the device that is there is taken (--device names another)",
    "graph.*": "blocks are compiled where it helps (--train.compile)",
    "optim.params._target_": "which weights decay is built in",
    "optim.params.model": "which weights decay is built in",
}
"""Keys that need no place in a recipe, and what is here instead."""
