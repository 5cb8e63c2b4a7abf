"""What a MindFormers config means as a recipe, section by section."""

from __future__ import annotations

from typing import Any

from paddock.config.foreign.account import Account
from paddock.config.foreign.mindformers_data import IDLE_OF_DATA, data
from paddock.config.foreign.mindformers_models import model
from paddock.errors import did_you_mean

PARALLEL, LAYOUT, RECOMPUTE, RUNNER = "parallel", "parallel_config", "recompute_config", "runner_config"
DATA_PARALLEL, SEMI_AUTO = 0, 1
"""Two of MindSpore's parallel modes: replicas alone, and the sizes of parallel_config."""
MODES = {
    **{"data_parallel": DATA_PARALLEL, "semi_auto_parallel": SEMI_AUTO},
    **{"auto_parallel": 2, "hybrid_parallel": 3, "stand_alone": DATA_PARALLEL},
}
SCALING = "runner_wrapper.scale_sense"
ADAMW = ("adamw", "adamweightdecay", "fusedadamweightdecay", "fp32stateadamweightdecay", "fusedcastadamweightdecay")
SCHEDULES = {
    "polynomial": "polynomial",
    "polynomialwithwarmuplr": "polynomial",
    "linear": "linear",
    "linearwithwarmuplr": "linear",
    "cosine": "cosine",
    "cosinewithwarmuplr": "cosine",
    "constant": "constant",
    "constantwarmuplr": "constant",
    "constantwithwarmuplr": "constant",
}
SAVING = ("CheckpointMointor", "CheckpointMonitor")
"""The first is how MindFormers spelt it."""
CALLBACKS = {
    **dict.fromkeys(["MFLossMonitor", "LossMonitor", "TimeMonitor"], "loss and time are always shown and recorded"),
    "SummaryMonitor": "metrics.jsonl has it, and --log.tensorboard writes event files",
    "ObsMonitor": "the run directory is where --run-dir says",
    "ProfileMonitor": "--train.callbacks names a profiler",
    "EvalCallBack": "evaluate.every says when",
    **dict.fromkeys(SAVING, "a checkpoint is a folder named by its step, and has no layout"),
}
"""Callbacks of theirs, and what is here instead."""
LOWEST_POLYNOMIAL = 1e-7
"""The rate at which MindFormers' polynomial ends, where a config does not say it."""


def convert(values: dict[str, Any]) -> Account:
    """The account of a config's flattened values."""
    account = Account("MindFormers", values)
    if not model(account):
        return account
    data(account)
    _layout(account)
    _length(account)
    _optimizer(account)
    _schedule(account)
    _precision(account)
    _callbacks(account)
    _beginning(account)
    account.settle(IDLE | IDLE_OF_DATA)
    return account


def _layout(account: Account) -> None:
    """The sizes of the layout and of the batch, which belong together there."""
    mode = account.get(f"{PARALLEL}.parallel_mode", DATA_PARALLEL)
    mode = MODES.get(mode.lower(), mode) if isinstance(mode, str) else mode
    alone = not account.flag("use_parallel")
    account.idle(f"{PARALLEL}.parallel_mode", "the sizes of the layout say it")
    if mode not in (DATA_PARALLEL, SEMI_AUTO) and not alone:
        account.refuse(
            f"{PARALLEL}.parallel_mode",
            "MindSpore would look for a layout itself. Say 1 and parallel_config; `paddock check config` shows it",
        )
    if alone or mode == DATA_PARALLEL:
        _replicas(account, "use_parallel is false" if alone else "parallel_mode 0 has replicas alone")
    else:
        _sizes(account)
    recompute, selective = f"{RECOMPUTE}.recompute", f"{RECOMPUTE}.select_recompute"
    if account.get(selective) not in (None, False):
        account.move(selective, "parallel.recompute", "selective", near=True, note="attention and activation functions")
        account.idle(recompute, "select_recompute says what is computed again")
    else:
        how = account.get(recompute) not in (None, False)
        account.move(recompute, "parallel.recompute", "full" if how else "none")
        account.idle(selective, "nothing is selected")


def _replicas(account: Account, why: str) -> None:
    micro, steps = f"{RUNNER}.batch_size", f"{RUNNER}.gradient_accumulation_steps"
    account.put("parallel.data", "auto", f"{why}: every process is a replica")
    account.move(micro, "batch.micro", account.whole(micro), note="samples of each process")
    account.put("batch.global", None)
    account.put("batch.accumulation", account.whole(steps))
    account.move(steps, "batch.accumulation")
    for name in ("data_parallel", "model_parallel", "pipeline_stage", "micro_batch_num", "optimizer_shard"):
        account.idle(f"{LAYOUT}.{name}", why)
    for name in ("use_seq_parallel", "expert_parallel"):
        account.idle(f"{LAYOUT}.{name}", why)
    account.idle(f"{PARALLEL}.enable_parallel_optimizer", why)
    account.idle(f"{PARALLEL}.full_batch", "every sample is read by one replica, whatever this says")


def _sizes(account: Account) -> None:
    data, tensor, pipeline = (
        account.whole(f"{LAYOUT}.{name}") for name in ("data_parallel", "model_parallel", "pipeline_stage")
    )
    account.move(f"{LAYOUT}.data_parallel", "parallel.data")
    account.move(f"{LAYOUT}.model_parallel", "parallel.tensor")
    account.move(f"{LAYOUT}.pipeline_stage", "parallel.pipeline")
    account.must_be(f"{LAYOUT}.expert_parallel", (1, None), "there are no experts")
    account.move(f"{LAYOUT}.use_seq_parallel", "parallel.sequence", account.flag(f"{LAYOUT}.use_seq_parallel"))
    shard, optimizer = f"{PARALLEL}.enable_parallel_optimizer", f"{LAYOUT}.optimizer_shard"
    if account.flag(shard) and account.get(optimizer) is not False and data > 1:
        account.move(shard, "parallel.shard", "optimizer", note="ZeRO-1/2")
        account.idle(optimizer, f"{shard} says it")
    else:
        if account.get(optimizer) is False:
            account.move(optimizer, "parallel.shard", "none")
        account.idle(shard, "it takes optimizer_shard and several replicas, too")
        account.idle(optimizer, f"{shard} is false, or there is one replica")
    if not account.flag(f"{PARALLEL}.full_batch") and tensor > 1:
        account.refuse(
            f"{PARALLEL}.full_batch",
            "each device reads samples of its own, though several share a model: the batch is larger than it seems. "
            "Say true, and the batch_size that is meant",
        )
    account.idle(f"{PARALLEL}.full_batch", "every sample is read once by those that need it")
    account.must_be("micro_batch_interleave_num", (1,), "every batch goes through the model by itself")
    micro, batches = f"{RUNNER}.batch_size", f"{LAYOUT}.micro_batch_num"
    steps = f"{RUNNER}.gradient_accumulation_steps"
    parts = account.whole(batches) if pipeline > 1 else account.whole(steps)
    account.move(micro, "batch.micro", account.whole(micro))
    used, unused = (batches, steps) if pipeline > 1 else (steps, batches)
    why = "the pipeline's micro-batches are counted by the other" if pipeline > 1 else "it counts only in a pipeline"
    account.move(used, "batch.accumulation")
    account.idle(unused, why)
    total = account.whole(micro) * data * parts
    account.put("batch.accumulation", None)
    account.put("batch.global", total, f"batch_size {account.whole(micro)} × data_parallel {data} × {parts}")


def _length(account: Account) -> None:
    account.put("train.steps", None)
    account.move(f"{RUNNER}.epochs", "train.epochs", account.whole(f"{RUNNER}.epochs"), note="passes over the data")
    if f"{RUNNER}.epochs" not in account:
        account.put("train.epochs", 1, "one pass over the data: the config says none")
    for name in ("initial_epoch", "has_trained_epoches", "has_trained_steps"):
        account.must_be(f"{RUNNER}.{name}", (0,), "a checkpoint knows where it was made")
    account.move("seed", "train.seed")


def _optimizer(account: Account) -> None:
    kind = account.word("optimizer.type", "AdamWeightDecay")
    if kind.lower() in ADAMW:
        note = "" if kind.lower() == "adamw" else "with the bias of the first steps corrected, which it leaves out"
        account.move("optimizer.type", "optimizer.name", "adamw", note=note, near=bool(note))
    elif kind.lower() in ("adam", "sgd"):
        account.move("optimizer.type", "optimizer.name", kind.lower())
    else:
        account.refuse("optimizer.type", "there is no such optimizer here: adamw, adam, sgd and adafactor")
    if "optimizer.betas" in account:
        account.move("optimizer.betas", "optimizer.betas")
    else:
        betas = [account.number("optimizer.beta1", 0.9), account.number("optimizer.beta2", 0.999)]
        account.put("optimizer.betas", betas)
        for key in ("optimizer.beta1", "optimizer.beta2"):
            account.move(key, "optimizer.betas", betas)
    account.put("optimizer.eps", 1e-6)
    account.move(account.first("optimizer.eps", "optimizer.epsilon"), "optimizer.eps")
    account.put("optimizer.weight_decay", 0.0)
    account.move("optimizer.weight_decay", "optimizer.weight_decay")
    clips = account.flag("runner_wrapper.use_clip_grad")
    limit = account.number("runner_wrapper.max_grad_norm", 1.0)
    account.put("optimizer.clip", limit if clips else None)
    account.move("runner_wrapper.use_clip_grad", "optimizer.clip", limit if clips else None)
    account.idle("runner_wrapper.max_grad_norm", "use_clip_grad says whether it counts")
    for key in ("layer_scale", "lr_scale"):
        account.must_be(key, (False, None), "no rate depends on the layer or on the number of devices")


def _schedule(account: Account) -> None:
    section = "lr_schedule"
    rate = account.first(f"{section}.learning_rate", "optimizer.learning_rate")
    if rate not in account:
        account.refuse(rate, "the config names no learning rate")
    account.move(rate, "optimizer.lr")
    account.idle("optimizer.learning_rate", f"{section} says it")
    kind = account.word(f"{section}.type", "constant").lower()
    if kind not in SCHEDULES:
        account.refuse(f"{section}.type", f"there is no such schedule here. {did_you_mean(kind, [*SCHEDULES])}")
        return
    name = SCHEDULES[kind]
    account.put("schedule.name", name)
    account.move(f"{section}.type", "schedule.name", name)
    lowest = account.number(f"{section}.lr_end", LOWEST_POLYNOMIAL if name == "polynomial" else 0.0)
    account.put("schedule.min_lr", lowest)
    account.move(f"{section}.lr_end", "schedule.min_lr")
    account.put("schedule.power", account.number(f"{section}.power", 1.0))
    account.move(f"{section}.power", "schedule.power")
    account.must_be(f"{section}.num_cycles", (0.5,), "the cosine goes down once")
    account.must_be(f"{section}.warmup_lr_init", (0, 0.0), "the warm-up begins at nothing")
    _times(account, section)


def _times(account: Account, section: str) -> None:
    """Warm-up and end of the decay: in steps, as a part, or in epochs."""
    account.put("schedule.warmup", 0)
    account.put("schedule.decay_steps", None)
    ratio, epochs, steps = (f"{section}.warmup_{unit}" for unit in ("ratio", "epochs", "steps"))
    end = f"{section}.total_steps"
    ends = account.get(end) not in (None, -1)
    if account.get(epochs) and account.get(ratio) is None:
        account.put("schedule.unit", "epochs", "the warm-up is counted in epochs")
        if ends:
            account.refuse(end, "the decay is counted in steps and the warm-up in epochs. Say warmup_steps")
    for key in (epochs, ratio, steps):  # the last counts, of those that are there: a ratio over epochs over steps
        if account.get(key) is None:
            account.idle(key, "it is not set")
    for key in (ratio, epochs, steps):
        if account.get(key) is not None:
            account.move(key, "schedule.warmup")
            break
    for key in (ratio, epochs, steps):
        if key not in account.lines:
            account.idle(key, "another warmup_ key counts")
    account.move(end, "schedule.decay_steps", account.get(end) if ends else None, note="" if ends else "the run's end")


def _precision(account: Account) -> None:
    key = "model.model_config.compute_dtype"
    if "model" not in account.recipe:  # the recipe of that name says it, or it is refused
        return
    compute = account.word(key, "float16" if account.recipe["model"]["family"] == "gpt2" else "float32")
    account.put("precision.compute", compute)
    account.move(key, "precision.compute")
    factor, value, window = (f"{SCALING}.{name}" for name in ("scale_factor", "loss_scale_value", "scale_window"))
    if compute != "float16":
        for name in (SCALING, f"{SCALING}.type", factor, value, window):
            account.idle(name, f"{compute} needs no loss scale")
        return
    fixed = account.get(SCALING)
    if isinstance(fixed, int | float) or "fixed" in account.word(f"{SCALING}.type").lower():
        account.move(SCALING if fixed is not None else value, "precision.loss_scale")
        account.idle(f"{SCALING}.type", "a number is a fixed scale")
        return
    account.idle(f"{SCALING}.type", "a dynamic scale is the default")
    account.must_be(factor, (2,), "the scale doubles and halves")
    account.move(value, "precision.initial_scale")
    account.move(window, "precision.scale_window")


def _callbacks(account: Account) -> None:
    account.put("log.every", 1)
    account.put("checkpoint.every", None)
    position = 0
    while f"callbacks[{position}].type" in account:
        _callback(account, f"callbacks[{position}]")
        position += 1
    evaluates = account.flag("do_eval")
    every = account.first("eval_step_interval", "eval_epoch_interval")
    account.put("evaluate.every", None)
    if evaluates and every == "eval_step_interval" and account.get(every, -1) not in (None, -1):
        account.move(every, "evaluate.every")
        account.idle("do_eval", "eval_step_interval says when")
    else:
        account.move("do_eval", "evaluate.every", "epoch" if evaluates else None)


def _callback(account: Account, name: str) -> None:
    kind = account.word(f"{name}.type")
    if kind not in CALLBACKS:
        account.refuse(f"{name}.type", f"there is no such callback here. {did_you_mean(kind, [*CALLBACKS])}")
        return
    account.idle(f"{name}.type", CALLBACKS[kind])
    if kind == "MFLossMonitor":
        account.move(f"{name}.per_print_times", "log.every")
    if kind in SAVING:
        account.move(f"{name}.save_checkpoint_steps", "checkpoint.every")
        account.move(f"{name}.keep_checkpoint_max", "checkpoint.keep")
        account.move(f"{name}.async_save", "checkpoint.asynchronous", account.flag(f"{name}.async_save"))
    for key in account.values:
        if key.startswith(f"{name}."):
            account.idle(key, CALLBACKS[kind])


def _beginning(account: Account) -> None:
    """What a run begins from."""
    account.put("checkpoint.load", None)
    key = account.first("load_checkpoint", "resume_or_finetune_checkpoint")
    place = account.get(key)
    if not place:
        account.idle(key, "the run begins anew")
        account.idle("resume_training", "there is nothing to go on from")
    elif not isinstance(place, str) or place.endswith(".ckpt"):
        account.refuse(key, "MindSpore's files of weights are not read. Name a run or a Hugging Face folder")
    else:
        resumes = account.get("resume_training", account.get("run_mode") != "finetune") is not False
        account.move(key, "checkpoint.load")
        account.put("checkpoint.weights_only", not resumes)
        account.move("resume_training", "checkpoint.weights_only", not resumes)
    account.idle("run_mode", "the verb says it: paddock train, evaluate, predict or generate")


def _each(section: str, names: str, why: str) -> dict[str, str]:
    return {f"{section}.{name}": why for name in names.split()}


IDLE = {
    "context.*": "MindSpore's compiler and devices; the device that is there is taken (--device names another)",
    "parallel.gradients_mean": "the loss is the mean over the valid tokens of the global batch, in every layout",
    "parallel.loss_repeated_mean": "the loss is the mean over the valid tokens of the global batch, in every layout",
    **_each(
        "parallel",
        "search_mode strategy_ckpt_save_file strategy_ckpt_load_file strategy_ckpt_config enable_alltoall "
        "dataset_strategy parallel_optimizer_config auto_parallel_search_mode comm_fusion",
        "how MindSpore finds and keeps a layout; checkpoints have none here",
    ),
    "parallel_config.vocab_emb_dp": "embedding and head are split over tensor-parallel processes; the loss is the same",
    "parallel_config.gradient_aggregation_group": "gradients are exchanged unit by unit",
    **_each(
        "recompute_config",
        "parallel_optimizer_comm_recompute mp_comm_recompute recompute_slice_activation select_comm_recompute",
        "which exchanges are repeated follows from parallel.recompute",
    ),
    "moe_config.*": "there are no experts",
    "swap_config.*": "nothing is moved to the host",
    **_each(
        "runner_config",
        "sink_mode sink_size per_epoch_size image_size num_classes",
        "how MindSpore feeds its devices, step by step or many at once",
    ),
    **_each("runner_wrapper", "type scale_sense micro_batch_num", "the loop is one for all layouts"),
    "auto_tune": "the input pipeline needs no tuning",
    "filepath_prefix": "the input pipeline needs no tuning",
    "autotune_*": "the input pipeline needs no tuning",
    "profile*": "--train.callbacks names a profiler",
    "init_start_profile": "--train.callbacks names a profiler",
    "output_dir": "--run-dir names the run directory",
    "only_save_strategy": "checkpoints have no layout",
    "src_strategy_path_or_dir": "checkpoints have no layout",
    "auto_trans_ckpt": "every checkpoint loads in every layout",
    "load_ckpt_*": "every checkpoint loads in every layout",
    "remote_save_url": "--run-dir names the run directory",
    "aicc_config.*": "--run-dir names the run directory",
    "use_parallel": "the number of processes says it (--nproc-per-node)",
    "micro_batch_interleave_num": "every batch goes through the model by itself",
    "layer_decay": "no rate depends on the layer",
    "lr_scale_factor": "no rate depends on the number of devices",
    "eval_callbacks*": "evaluations are logged like steps",
    "eval_*": "paddock evaluate measures; evaluate.every does during training",
    "trainer.*": "the recipe says model and task",
    "metric.*": "the task says what is measured",
    "processor.*": "the tokenizer is named by --tokenizer.kind, or comes with the weights",
    "train_dataset_task.*": "the same as train_dataset",
    "local_rank": "the launcher says it",
    "device_num": "the launcher says it",
    "ignore_data_skip": "a run that goes on knows its position in the data",
    "data_skip_steps": "a run that goes on knows its position in the data",
}
"""Keys that need no place in a recipe, and what is here instead."""
