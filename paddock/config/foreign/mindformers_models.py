"""The `model` section of a MindFormers config, for the families that are here."""

from __future__ import annotations

from paddock.config.foreign.account import Account
from paddock.errors import did_you_mean

CONFIG = "model.model_config"
ARCHITECTURES = {
    "GPT2LMHeadModel": "language_modeling",
    "BertForQuestionAnswering": "question_answering",
    "T5ForConditionalGeneration": "sequence_to_sequence",
}
"""Models of theirs that are here, and their tasks."""
BASES = {"GPT2Config": "gpt2/base", "BertConfig": "bert/base-uncased-squad", "T5Config": "t5/small"}
FAMILIES = {"GPT2Config": "gpt2", "BertConfig": "bert", "T5Config": "t5"}
SIZES = {
    "layers": ("num_layers", "num_hidden_layers"),
    "hidden": ("hidden_size", "embedding_size", "d_model"),
    "heads": ("num_heads", "num_attention_heads", "n_head"),
    "vocab": ("vocab_size",),
}
"""What every family has, and how it is spelt."""
GENERATION = (
    "repetition_penalty max_decode_length max_length max_new_tokens min_length top_k top_p do_sample num_beams "
    "temperature length_penalty_weight use_past is_sample_acceleration early_stopping"
)


def model(account: Account) -> bool:
    """Family, task and sizes; the recipe of that name where the config only names one. False where there is none."""
    kind, name = account.word(f"{CONFIG}.type"), account.word("trainer.model_name")
    if not kind:
        if not name:
            account.refuse(f"{CONFIG}.type", "the config says neither a model nor its name")
            return False
        account.recipe["extends"] = name
        account.idle("trainer.model_name", f"the recipe of that name is taken: {name}")
        return True
    if kind not in FAMILIES:
        account.refuse(f"{CONFIG}.type", f"there is no such family here. {did_you_mean(kind, [*FAMILIES])}")
        return False
    architecture = account.word("model.arch.type")
    if architecture not in ARCHITECTURES:
        choices = [*ARCHITECTURES]
        account.refuse("model.arch.type", f"there is no such model here. {did_you_mean(architecture, choices)}")
        return False
    account.recipe["extends"] = BASES[kind]
    account.put("task", ARCHITECTURES[architecture])
    account.move("model.arch.type", "task", ARCHITECTURES[architecture])
    account.put("model.family", FAMILIES[kind])
    account.move(f"{CONFIG}.type", "model.family", FAMILIES[kind])
    _sizes(account)
    {"gpt2": _gpt2, "bert": _bert, "t5": _t5}[FAMILIES[kind]](account)
    for generation in GENERATION.split():
        account.idle(f"{CONFIG}.{generation}", "paddock generate takes it as a flag")
    for key, note in IDLE_OF_MODEL.items():
        account.idle(f"{CONFIG}.{key}", note)
    return True


def _sizes(account: Account) -> None:
    for field, spellings in SIZES.items():
        key = account.first(*(f"{CONFIG}.{spelling}" for spelling in spellings))
        if key in account:
            account.move(key, f"model.{field}", account.whole(key))
        else:
            account.refuse(key, "the config does not say it")


def _dropout(account: Account, embedding: str, hidden: str, attention: str) -> None:
    """Two rates here: of attention weights, and of all else."""
    rate = account.number(hidden, 0.1)
    account.put("model.dropout", rate)
    account.move(hidden, "model.dropout")
    account.put("model.attention_dropout", account.number(attention, 0.1))
    account.move(attention, "model.attention_dropout")
    if account.get(embedding, rate) != rate:
        account.move(embedding, "model.dropout", rate, near=True, note="embeddings are dropped out like the rest here")
    else:
        account.idle(embedding, "the same as of the rest")


def _activation(account: Account, became: dict[str, tuple[str, str]]) -> None:
    key = f"{CONFIG}.hidden_act"
    value = account.word(key, "gelu")
    if value not in became:
        account.refuse(key, f"there is no such activation here. {did_you_mean(value, [*became])}")
        return
    activation, note = became[value]
    account.put("model.activation", activation)
    account.move(key, "model.activation", activation, note=note, near=bool(note))


def _feed_forward(account: Account) -> None:
    """As wide as it says, or so many times the rest."""
    width, ratio = account.first(f"{CONFIG}.intermediate_size", f"{CONFIG}.d_ff"), f"{CONFIG}.expand_ratio"
    if width in account:
        account.move(width, "model.feed_forward", account.whole(width))
        account.idle(ratio, "the width is said")
        return
    hidden = account.recipe["model"].get("hidden", 0)
    account.put("model.feed_forward", account.whole(ratio, 4) * hidden)
    account.move(ratio, "model.feed_forward", account.whole(ratio, 4) * hidden, note=f"that × hidden {hidden}")


def _gpt2(account: Account) -> None:
    account.put("tokenizer", {"kind": "none"})
    _feed_forward(account)
    spellings = (
        ("hidden_dropout_prob", "hidden_dropout_rate"),
        ("attention_probs_dropout_prob", "attention_dropout_rate"),
    )
    hidden, attention = (account.first(*(f"{CONFIG}.{name}" for name in names)) for names in spellings)
    embedding = account.first(f"{CONFIG}.dropout_prob", f"{CONFIG}.embedding_dropout_prob")
    _dropout(account, embedding, hidden, attention)
    near = "x · sigmoid(1.702 x), which no model here has; the other approximation differs by 0.02 at most"
    _activation(
        account,
        {
            "gelu": ("gelu_tanh", ""),
            "gelu_new": ("gelu_tanh", ""),
            "fast_gelu": ("gelu_tanh", near),
            "relu": ("relu", ""),
        },
    )
    account.put("model.init_std", 0.02)
    account.move(f"{CONFIG}.initializer_range", "model.init_std")
    length, positions = f"{CONFIG}.seq_length", f"{CONFIG}.max_position_embeddings"
    account.put("data.sequence_length", account.whole(length, 1024))
    account.put("model.context", account.whole(positions, account.whole(length, 1024)))
    account.move(positions, "model.context")
    account.move(length, "data.sequence_length", note="" if positions in account else "and model.context")
    end = account.first(f"{CONFIG}.eos_token", f"{CONFIG}.eos_token_id")
    if account.get(end) is not None:
        account.put("data.eod_mask_loss", True)
        account.move(end, "data.eod", account.whole(end), near=True, note=_END)


_END = "what follows it does not count in the loss (data.eod_mask_loss), as there; other tokens may look at it here"


def _bert(account: Account) -> None:
    _feed_forward(account)
    hidden, attention = f"{CONFIG}.hidden_dropout_prob", f"{CONFIG}.attention_probs_dropout_prob"
    _dropout(account, f"{CONFIG}.dropout_prob", hidden, attention)
    near = "the exact form, as published weights have it; MindSpore takes its approximation by tanh"
    _activation(account, {"gelu": ("gelu", near), "relu": ("relu", "")})
    account.put("model.head", "question_answering")
    account.move(f"{CONFIG}.type_vocab_size", "model.token_types")
    account.move(f"{CONFIG}.initializer_range", "model.init_std")
    account.move(f"{CONFIG}.max_position_embeddings", "model.context")
    account.move(f"{CONFIG}.seq_length", "data.sequence_length")
    for key, value in (("post_layernorm_residual", True), ("use_relative_positions", False)):
        account.must_be(f"{CONFIG}.{key}", (value,), "that is how a BERT is made")
    for key in ("num_labels", "use_one_hot_embeddings"):
        account.idle(f"{CONFIG}.{key}", "the task says it")


def _t5(account: Account) -> None:
    _feed_forward(account)
    rate = f"{CONFIG}.hidden_dropout_prob"
    account.put("model.dropout", account.number(rate, 0.1))
    account.move(rate, "model.dropout")
    _activation(account, {"relu": ("relu", "")})
    account.move(f"{CONFIG}.d_kv", "model.head_size")
    account.move(f"{CONFIG}.num_decoder_layers", "model.decoder_layers")
    account.move(f"{CONFIG}.relative_attention_num_buckets", "model.position_buckets")
    account.move(f"{CONFIG}.layer_norm_epsilon", "model.norm_eps")
    account.move(f"{CONFIG}.initializer_factor", "model.init_factor")
    account.must_be(f"{CONFIG}.scale_output", (True,), "a T5 v1.0 scales what its head takes")
    account.must_be(f"{CONFIG}.has_relative_bias", (True,), "that is how a T5 is made")
    for key in ("initializer_range", "max_position_embeddings", "seq_length", "is_encoder_decoder", "use_cache"):
        account.idle(f"{CONFIG}.{key}", "a T5 has relative positions, and no other weights than its own")


IDLE_OF_MODEL = {
    "batch_size": "runner_config.batch_size says it",
    "checkpoint_name_or_path": "training begins anew, or from load_checkpoint; --checkpoint.load names weights",
    "param_init_type": "weights stay in float32, whatever is computed in",
    **dict.fromkeys(
        ["layernorm_dtype", "softmax_dtype", "layernorm_compute_type", "softmax_compute_type", "dtype"],
        "norms and softmaxes choose what is exact enough",
    ),
    **dict.fromkeys(["use_flash_attention", "use_prompt_flash_attention"], "fused attention is always on"),
    **dict.fromkeys(["eos_token", "eos_token_id", "bos_token_id", "pad_token_id"], "the tokenizer knows it"),
    "is_npu_acceleration": "the device chooses its kernels",
}
