"""What of the settings files the owner has written: all but the lines that pikobot itself puts there.

The documentation in these files may have the same words as an answer of pikobot; it tells nothing of the owner.
"""

from functools import cache

from pikobot.config_file import default_config_text
from pikobot.credentials import default_credentials_text

_DEFAULTS = {"config.toml": default_config_text, "credentials.toml": default_credentials_text}


def owners_part(name: str, data: bytes) -> bytes:
    """The content of a file of the instance without pikobot's own lines; of other files all of it."""
    if name not in _DEFAULTS:
        return data
    own = _own_lines(name)
    return b"\n".join(line for line in data.splitlines() if line.strip() not in own)


@cache
def _own_lines(name: str) -> frozenset[bytes]:
    return frozenset(line.strip() for line in _DEFAULTS[name]().encode().splitlines())
