"""Configs of the systems that users come from, turned into recipes: what each of their keys means here, said key by
key. What a file says is read and never executed."""


def idle_keys() -> dict[str, dict[str, str]]:
    """By system, the keys that need no place in a recipe, and what is here instead."""
    from paddock.config.foreign import deepspeed, libai, libai_data, libai_models, mindformers, mindformers_data

    return {
        "DeepSpeed": deepspeed.IDLE,
        "LiBai": libai.IDLE | libai_models.IDLE_OF_MODEL | libai_data.IDLE_OF_DATA,
        "MindFormers": mindformers.IDLE | mindformers_data.IDLE_OF_DATA,
    }
