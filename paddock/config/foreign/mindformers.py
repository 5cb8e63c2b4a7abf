"""What a MindFormers config means as a recipe, section by section."""

from __future__ import annotations

from typing import Any

from paddock.config.foreign.account import Account
from paddock.config.foreign.mindformers_data import IDLE_OF_DATA, data
from paddock.config.foreign.mindformers_layout import layout
from paddock.config.foreign.mindformers_models import model
from paddock.config.foreign.mindformers_training import training


def convert(values: dict[str, Any]) -> Account:
    """The account of a config's flattened values."""
    account = Account("MindFormers", values)
    if not model(account):
        return account
    data(account)
    layout(account)
    training(account)
    account.explain_rest(IDLE | IDLE_OF_DATA)
    return account


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
    "profile*": "a profiler can be a callback (--train.callbacks)",
    "init_start_profile": "a profiler can be a callback (--train.callbacks)",
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
