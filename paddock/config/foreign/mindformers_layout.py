"""Sizes of the layout and of the batch in a MindFormers config, which belong together there."""

from __future__ import annotations

from paddock.config.foreign.account import Account

PARALLEL, LAYOUT, RECOMPUTE, RUNNER = "parallel", "parallel_config", "recompute_config", "runner_config"
DATA_PARALLEL, SEMI_AUTO = 0, 1
"""Two of MindSpore's parallel modes: replicas alone, and the sizes of parallel_config."""
MODES = {
    **{"data_parallel": DATA_PARALLEL, "semi_auto_parallel": SEMI_AUTO},
    **{"auto_parallel": 2, "hybrid_parallel": 3, "stand_alone": DATA_PARALLEL},
}


def layout(account: Account) -> None:
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
