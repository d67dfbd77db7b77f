"""Credentials taken out of text before it goes where it needn't: error messages, logs, extraction prompts.

Defence in depth, not proof: it knows the secrets it is given and the shapes of common ones. A password of
several words, an unusual key or one that is spelled out passes; to be certain, do not send the text at all.

Every pattern takes time linear in the text: what it starts with is fixed or preceded by a look-behind,
repetitions are possessive or bounded, and the checks that need more than a pattern are functions.
"""

import re
from collections.abc import Collection, Iterator

REDACTED = "[redacted]"
MIN_SECRET_CHARS = 4  # a shorter "secret" would take ordinary words out
MAX_KEY_BLOCK_CHARS = 20_000

_KEY_BLOCK_BEGIN = re.compile(r"-----BEGIN [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_END = re.compile(r"-----END [A-Z0-9 ]{0,40}PRIVATE KEY(?: BLOCK)?-----")
_KEY_BLOCK_LINES = re.compile(r"(?:\s{0,4}[A-Za-z0-9+/=]{32,}+)*+")

# Shapes that are credentials wherever they stand.
_TOKENS = re.compile(
    r"""
      (?<![A-Za-z0-9_-]) eyJ[A-Za-z0-9_-]{5,}+ \. [A-Za-z0-9_-]{5,}+ (?: \. [A-Za-z0-9_-]*+ )?  # JWT
    | (?<![A-Za-z0-9]) A (?: KIA | SIA | BIA | CCA | GPA | IDA | NPA | ROA ) [A-Z0-9]{16} (?![A-Za-z0-9])
    | (?<![A-Za-z0-9]) (?: gh[oprsu]_ | github_pat_ ) [A-Za-z0-9_]{20,}+
    | (?<![A-Za-z0-9]) glpat- [A-Za-z0-9_-]{16,}+
    | (?<![A-Za-z0-9]) (?: xox[abceoprs] | xapp ) - [A-Za-z0-9-]{10,}+
    | (?<![A-Za-z0-9]) AIza [A-Za-z0-9_-]{35}
    | (?<![A-Za-z0-9]) (?: hf | npm ) _ [A-Za-z0-9]{20,}+
    | (?<![A-Za-z0-9]) [rs]k_ (?: live | test ) _ [A-Za-z0-9]{10,}+
    | (?<![0-9]) [0-9]{6,12} : [A-Za-z0-9_-]{30,64} (?![A-Za-z0-9_-])  # Telegram bot
    """,
    re.VERBOSE,
)
# Shapes that are credentials if they hold a digit: what follows "sk-" or "bearer" may be words.
_LIKELY_TOKENS = re.compile(
    r"""
      (?<![A-Za-z0-9]) sk- (?P<key> [A-Za-z0-9_-]{8,}+ )
    | (?i: \b bearer ) [ \t]{1,4} (?P<bearer> [A-Za-z0-9._~+/=-]{8,}+ )
    """,
    re.VERBOSE,
)
_URL_PASSWORD = re.compile(r"(?<=://)(?P<user>[^\s/@:\"']{0,64}+:)[^\s/@\"']{1,256}+(?=@)")

_CREDENTIAL_NAMES = r"""
    pass[ _-]?word | passwd | passphrase | pwd | (?: api | access | secret | private )[ _-]?key
    | client[ _-]?secret | (?: access | auth | refresh )[ _-]?token | 密[ ]?码 | 口令 | 密钥 | 私钥
"""
_AMBIGUOUS_NAMES = "token | secret | credential | 令牌 | 凭证"
_VALUE = r"""
    (?P<before> \\?["'”」]? [ \t]{0,3} (?: [:=：＝] | => | (?P<verb> \b is \b | 就?是 | 为 ) ) [ \t：:]{0,3}
        (?: \\?["'“「] )? )
    (?P<value>
        (?<= [^\\]" ) (?: [^"\\\n] | \\. )++
      | (?<= \\" ) [^"\\\n]++
      | (?<= ' ) [^'\n]++
      | (?<= [“「] ) [^”」\n]++
      | (?<! ["'“「] ) (?: [^\s"'“”「」，。；、！？,;\\] | [,;\\](?=[A-Za-z0-9]) )++
    )
"""
_ASSIGNED = re.compile(f"(?P<name> (?i: {_CREDENTIAL_NAMES} ) ) {_VALUE}", re.VERBOSE)
_PERHAPS_ASSIGNED = re.compile(f"(?P<name> (?i: {_AMBIGUOUS_NAMES} ) ) {_VALUE}", re.VERBOSE)
_MIN_AMBIGUOUS_CHARS = 8
_MIN_STATED_CHARS = 4


def redact(text: str, secrets: Collection[str] = ()) -> str:
    """The text with given secrets and common credentials replaced by ``[redacted]``.

    Of ``secrets`` those under MIN_SECRET_CHARS characters are ignored.
    """
    for secret in sorted(secrets, key=len, reverse=True):
        if len(secret) >= MIN_SECRET_CHARS and secret not in REDACTED:
            text = text.replace(secret, REDACTED)
    text = "".join(_without_key_blocks(text))
    text = _TOKENS.sub(REDACTED, text)
    text = _LIKELY_TOKENS.sub(_replace_likely_token, text)
    text = _URL_PASSWORD.sub(lambda match: match["user"] + REDACTED, text)
    text = _ASSIGNED.sub(_replace_assigned, text)
    return _PERHAPS_ASSIGNED.sub(_replace_perhaps_assigned, text)


def _without_key_blocks(text: str) -> Iterator[str]:
    """Pieces of the text around private keys. A block without an end loses the lines that look like one."""
    done = 0
    ends = _KEY_BLOCK_END.finditer(text)
    end = next(ends, None)
    for begin in _KEY_BLOCK_BEGIN.finditer(text):
        if begin.start() < done:
            continue
        while end is not None and end.start() < begin.end():
            end = next(ends, None)
        yield text[done : begin.start()]
        yield REDACTED
        if end is not None and end.end() - begin.start() <= MAX_KEY_BLOCK_CHARS:
            done = end.end()
        else:
            lines = _KEY_BLOCK_LINES.match(text, begin.end())
            done = lines.end() if lines else begin.end()
    yield text[done:]


def _replace_likely_token(match: re.Match[str]) -> str:
    secret = match["key"] or match["bearer"]
    return match[0].replace(secret, REDACTED) if _has_digit(secret) else match[0]


def _replace_assigned(match: re.Match[str]) -> str:
    """After "=" or ":" a password is whatever follows; "the password is wrong" needs more evidence."""
    if match["verb"] and not _looks_random(match["value"], _MIN_STATED_CHARS):
        return match[0]
    return match["name"] + match["before"] + REDACTED


def _replace_perhaps_assigned(match: re.Match[str]) -> str:
    if not _looks_random(match["value"], _MIN_AMBIGUOUS_CHARS):
        return match[0]
    return match["name"] + match["before"] + REDACTED


def _looks_random(value: str, min_chars: int) -> bool:
    return len(value) >= min_chars and value.isascii() and _has_digit(value)


def _has_digit(text: str) -> bool:
    return any(char.isdigit() for char in text)
