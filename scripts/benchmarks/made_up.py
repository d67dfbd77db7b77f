"""Texts that nobody said, as many as are wanted: sentences of the shared conversations with words exchanged."""

import json
import random
import re
from collections.abc import Iterator
from pathlib import Path

from scripts.benchmarks.shared_data import FOLDERS

SHORTEST_SENTENCE = 4
EXCHANGED = 1 / 6
_SENTENCE = re.compile(r"[^\n.!?。！？；]+[.!?。！？；]?")
_UNIT = re.compile(r"[\u4e00-\u9fff]{1,2}|\w+|[^\w]+")


def made_up_texts(data: Path, chance: random.Random) -> Iterator[str]:
    """Texts of one to four sentences, every sixth word or pair of characters another than it was said with."""
    conversations = [_sentences(data / folder) for folder in FOLDERS]
    words = [[_UNIT.findall(sentence) for sentence in sentences] for sentences in conversations]
    vocabularies = [
        [word for sentence in language for word in sentence if word.isalnum()] for language in words
    ]
    while True:
        language = chance.randrange(len(words))
        vocabulary = vocabularies[language]
        chosen = chance.choices(words[language], k=chance.choice((1, 1, 2, 2, 3, 4)))
        yield " ".join(
            "".join(
                chance.choice(vocabulary) if word.isalnum() and chance.random() < EXCHANGED else word
                for word in sentence
            )
            for sentence in chosen
        )


def _sentences(folder: Path) -> list[str]:
    """Those that say something."""
    texts = [
        json.loads(line)["text"]
        for file in sorted(folder.glob("*.jsonl"))
        if file.stem != "questions"
        for line in file.read_text(encoding="utf-8").splitlines()
    ]
    sentences = [sentence.strip() for text in texts for sentence in _SENTENCE.findall(text)]
    return [sentence for sentence in sentences if len(sentence) > SHORTEST_SENTENCE]
