"""What a prompt gives beside others is what it gives alone, in every format, to within its roundings."""

from __future__ import annotations

import pytest

from paddock.devices.config import WeightFormat
from paddock.testing.writing import FORMATS, prompts_of, same_but_for_roundings, tell_alone

PROMPTS = prompts_of(6)


@pytest.mark.parametrize("model", ["gpt2", "t5"])
@pytest.mark.parametrize("format", FORMATS)
def test_beside_others_as_alone(model: str, format: WeightFormat) -> None:
    together = tell_alone(model, format, PROMPTS, sequences=5)
    alone = [tell_alone(model, format, [prompt], sequences=1)[0] for prompt in PROMPTS]
    assert same_but_for_roundings(together, alone, format)
    assert not same_but_for_roundings([*alone[1:], alone[0]], alone, format), "prompts are too alike to tell anything"
