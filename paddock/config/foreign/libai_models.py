"""The `model` of a LiBai config, for the families that are here."""

from __future__ import annotations

from paddock.config.foreign.account import Account
from paddock.errors import did_you_mean

CONFIG = "model.cfg"
TARGET = "model._target_"
GPT, MT5 = "GPTForPreTraining", "MT5ForPreTraining"
SIZES = {"hidden_layers": "layers", "hidden_size": "hidden", "num_attention_heads": "heads"}
ELSEWHERE = {
    "T5ForPreTraining": "LiBai's T5 has learned positions and biases, which no T5 here has. Its projects/MT5 has the "
    "published one (model_type t5 or mt5)",
    "BertForPreTraining": "LiBai's BERT has its norms before each part and a second loss. bert/base-uncased is the "
    "published one",
}


def model(account: Account) -> bool:
    """Family and sizes; False where it is none of ours."""
    if not any(key.startswith("model.") for key in account.values):
        account.refuse("model", "the config has no model: it is a part of others")
        return False
    target = account.word(TARGET)
    name = target.rpartition(".")[2]
    if name == "pretrain_model":  # of a config that is imported and not there
        name = {"gpt": GPT, "mt5_base": MT5, "mt5_small": MT5, "mt5_large": MT5, "t5": "T5ForPreTraining"}.get(
            target.split(".")[-2], name
        )
    if name not in (GPT, MT5):
        why = ELSEWHERE.get(name) or f"there is no such model here. {did_you_mean(name, [GPT, MT5])}"
        account.refuse(TARGET, why)
        return False
    for theirs, ours in SIZES.items():
        key = f"{CONFIG}.{theirs}"
        if key in account:
            account.move(key, f"model.{ours}", account.whole(key))
        else:
            account.refuse(key, "the config does not say it, and what it imports is not there")
    account.recipe["extends"] = "gpt2/base" if name == GPT else "mt5/base"
    account.put("task", "language_modeling" if name == GPT else "span_corruption")
    account.move(TARGET, "model.family", "gpt2" if name == GPT else "t5")
    (_gpt if name == GPT else _mt5)(account)
    weights = f"{CONFIG}.pretrained_model_path"
    if account.get(weights):
        account.move(weights, "checkpoint.load", note="weights alone")
        account.put("checkpoint.weights_only", True)
    account.idle(weights, "the run begins anew")
    return True


def _dropout(account: Account, rest: str) -> None:
    """Two rates here: of attention weights, and of all else."""
    rate = account.number(f"{CONFIG}.{rest}")
    account.put("model.dropout", rate)
    account.move(f"{CONFIG}.{rest}", "model.dropout")
    embedding = f"{CONFIG}.embedding_dropout_prob"
    if account.get(embedding, rate) != rate:
        account.move(embedding, "model.dropout", rate, near=True, note="embeddings are dropped out like the rest here")
    account.idle(embedding, "the same as of the rest")


def _gpt(account: Account) -> None:
    """LiBai's GPT has the exact GELU, that of its MagicPrompt the approximation, as published GPT-2 weights."""
    tanh = "MagicPrompt" in account.word(TARGET) and not account.flag(f"{CONFIG}.bias_gelu_fusion")
    account.put("model.activation", "gelu_tanh" if tanh else "gelu", "as in that model of LiBai")
    _dropout(account, "output_dropout_prob")
    account.put("model.attention_dropout", account.number(f"{CONFIG}.attention_dropout_prob"))
    account.move(f"{CONFIG}.attention_dropout_prob", "model.attention_dropout")
    account.move(f"{CONFIG}.ffn_hidden_size", "model.feed_forward")
    account.move(f"{CONFIG}.layernorm_epsilon", "model.norm_eps")
    account.move(f"{CONFIG}.initializer_range", "model.init_std")
    account.move(f"{CONFIG}.max_seq_length", "model.context")
    scaled = "use_scaled_init_for_output_weights"
    account.must_be(f"{CONFIG}.{scaled}", (True,), "projections into the residual stream begin smaller, always")
    account.must_be(f"{CONFIG}.apply_residual_post_layernorm", (False,), "the residual stream passes by the norms")


def _mt5(account: Account) -> None:
    kind = account.word(f"{CONFIG}.model_type", "mt5")
    if kind not in ("mt5", "t5"):
        account.refuse(f"{CONFIG}.model_type", "it is mt5 or t5")
        return
    old = kind == "t5"
    account.put("model.activation", "relu" if old else "gelu_tanh")
    account.put("model.gated", not old)
    account.put("model.tied", old)
    account.move(f"{CONFIG}.model_type", "model.gated", not old, note="and activation and head, as they go with it")
    scale = account.flag(f"{CONFIG}.tie_word_embeddings")
    account.put("model.scale_head", scale)
    account.move(f"{CONFIG}.tie_word_embeddings", "model.scale_head", scale, note="all that it does there")
    _dropout(account, "hidden_dropout_prob")
    account.put("model.attention_dropout", account.number(f"{CONFIG}.attention_probs_dropout_prob"))
    account.move(f"{CONFIG}.attention_probs_dropout_prob", "model.attention_dropout")
    account.move(f"{CONFIG}.head_size", "model.head_size")
    account.move(f"{CONFIG}.intermediate_size", "model.feed_forward")
    account.move(f"{CONFIG}.relative_attention_num_buckets", "model.position_buckets")
    account.move(f"{CONFIG}.layernorm_eps", "model.norm_eps")
    note = "initial weights have the widths of T5's own, times model.init_factor"
    account.move(f"{CONFIG}.initializer_range", "model.init_factor", 1.0, near=True, note=note)


IDLE_OF_MODEL = {
    **{
        f"{CONFIG}.{name}": "fusion is the compiler's choice (--train.compile)"
        for name in ("bias_gelu_fusion", "bias_dropout_fusion", "scale_mask_softmax_fusion")
    },
    f"{CONFIG}.apply_query_key_layer_scaling": "it changes rounding alone; queries and keys are never scaled by layer",
    f"{CONFIG}.amp_enabled": "train.amp says it",
    f"{CONFIG}.is_encoder_decoder": "the family says it",
    f"{CONFIG}.*_token_id": "the tokenizer knows it",
    f"{CONFIG}.*_token": "the tokenizer knows it",
    f"{CONFIG}.*_idx": "the tokenizer knows it",
    **{
        f"{CONFIG}.{name}": "paddock generate takes it as a flag"
        for name in (
            "max_length min_length do_sample early_stopping num_beams num_beam_groups diversity_penalty temperature "
            "top_k top_p typical_p repetition_penalty length_penalty no_repeat_ngram_size encoder_no_repeat_ngram_size "
            "num_return_sequences chunk_size_feed_forward output_scores output_hidden_states output_attentions "
            "use_cache forced_* remove_invalid_values exponential_decay_length_penalty bad_words_ids"
        ).split()
    },
    **{
        f"{name}.*": "one model of them is trained, the one that is called model"
        for name in ("cfg", "gpt_model", "mt5_model", "pretrain_model")
    },
}
