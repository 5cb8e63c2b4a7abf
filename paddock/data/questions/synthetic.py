"""Questions that Paddock writes itself, for trying a model without data: who saw what, where and when.

Every text tells of one sighting and says something else besides. A small model learns in a minute to find the part
that a question asks for, and it learns nothing else. Text number i depends on i alone.
"""

from __future__ import annotations

from typing import Any

import numpy as np

FIRST = "Anna Boris Clara David Elena Felix Greta Hugo Ivana Jonas Katja Leon Marta Nils Olga Pavel".split()
LAST = "Keller Novak Berg Silva Olsen Weber Rossi Horvat Dumont Lang Moreau Petrov Stein Varga Winter Zeller".split()
VALUES = {
    "person": [f"{first} {last}" for first in FIRST for last in LAST],
    "place": ["Berlin", "Lisbon", "Oslo", "Vienna", "Prague", "Madrid", "Dublin", "Athens", "New York", "Cape Town"],
    "day": "Monday Tuesday Wednesday Thursday Friday Saturday Sunday".split(),
    "colour": "red blue green grey white black brown yellow".split(),
    "number": "two three four five six seven eight nine ten twelve".split(),
    "animal": "horses foxes owls wolves geese bears cats hares swans goats".split(),
}
QUESTIONS = {
    "person": ("Who saw them?", "Who was there?", "Which person saw the animals?"),
    "place": ("Where was it?", "In which city was it?", "Where were they seen?"),
    "day": ("When was it?", "On which day was it?", "When were they seen?"),
    "colour": ("What colour were they?", "Which colour did they have?"),
    "number": ("How many were there?", "How many of them were seen?"),
    "animal": ("What was seen?", "Which animals were there?"),
}
ASIDES = (
    "The wind had been strong all night.",
    "Nobody spoke about it afterwards.",
    "The road was empty, and the shops were closed.",
    "It was a quiet morning.",
    "Somebody wrote a short note in the paper.",
)
PER_TEXT = 3
"""Questions about each text."""


def synthetic_squad(count: int, first: int = 0, unanswerable: bool = False) -> dict[str, Any]:
    """`count` questions about the texts from number `first` on, as the content of a SQuAD file."""
    paragraphs = [_paragraph(first + number, unanswerable) for number in range(-(-count // PER_TEXT))]
    surplus = len(paragraphs) * PER_TEXT - count
    if surplus:
        paragraphs[-1]["qas"] = paragraphs[-1]["qas"][:-surplus]
    version = "v2.0" if unanswerable else "1.1"
    return {"version": version, "data": [{"title": "Sightings", "paragraphs": paragraphs}]}


def _paragraph(number: int, unanswerable: bool) -> dict[str, Any]:
    generator = np.random.default_rng([20, number])
    facts = {kind: str(generator.choice(values)) for kind, values in VALUES.items()}
    hidden = {str(kind) for kind in generator.choice(["place", "day", "colour"], 1)} if unanswerable else set()
    colour = "" if "colour" in hidden else f"{facts['colour']} "
    sentence = f"{facts['person']} saw {facts['number']} {colour}{facts['animal']}"
    sentence += "" if "place" in hidden else f" in {facts['place']}"
    if "day" not in hidden:
        sentence = f"On {facts['day']} {sentence}" if generator.random() < 0.5 else f"{sentence} on {facts['day']}"
    asides = [str(aside) for aside in generator.choice(ASIDES, int(generator.integers(0, 3)), replace=False)]
    asides.insert(int(generator.integers(len(asides) + 1)), f"{sentence}.")
    context = " ".join(asides)
    kinds = [str(kind) for kind in generator.choice(list(QUESTIONS), PER_TEXT, replace=False)]
    if hidden and not hidden & set(kinds):
        kinds[0] = next(iter(hidden))
    entries = []
    for kind in kinds:
        answers = [{"text": facts[kind], "answer_start": context.index(sentence) + sentence.find(facts[kind])}]
        entry = {
            "id": f"{number}-{kind}",
            "question": str(generator.choice(QUESTIONS[kind])),
            "answers": [] if kind in hidden else answers,
        }
        entries.append({**entry, "is_impossible": kind in hidden} if unanswerable else entry)
    return {"context": context, "qas": entries}
