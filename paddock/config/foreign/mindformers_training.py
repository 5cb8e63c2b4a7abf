"""How long, how and from where a MindFormers config trains: runner, optimizer, rate, number types, callbacks."""

from __future__ import annotations

from paddock.config.foreign.account import Account
from paddock.config.foreign.mindformers_layout import RUNNER
from paddock.errors import did_you_mean

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
    "ProfileMonitor": "a profiler can be a callback (--train.callbacks)",
    "EvalCallBack": "evaluate.every says when",
    **dict.fromkeys(SAVING, "a checkpoint is a folder named by its step, and has no layout"),
}
"""Callbacks of theirs, and what is here instead."""
LOWEST_POLYNOMIAL = 1e-7
"""The rate at which MindFormers' polynomial ends, where a config does not say it."""


def training(account: Account) -> None:
    """All that is neither model, data nor layout."""
    for section in (_length, _optimizer, _schedule, _precision, _callbacks, _beginning):
        section(account)


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
