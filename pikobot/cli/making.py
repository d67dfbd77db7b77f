"""The instance that a command works on, made with the defaults where there is none yet."""

import sys
from pathlib import Path

from pikobot.config_file import default_config_text
from pikobot.instance import Instance, create_instance, is_instance, open_instance


def open_or_make(root: Path) -> Instance:
    """The instance in a directory; a new one is announced on stderr. Raises what opening and creating it raise."""
    if is_instance(root):
        return open_instance(root)
    instance = create_instance(root, default_config_text())
    sys.stderr.write(
        f"made a new instance at {root}; `pikobot init {instance.option}` changes its settings\n"
    )
    return instance
