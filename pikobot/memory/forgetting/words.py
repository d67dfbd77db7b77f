"""What somebody asks to forget in words, as `requests` reads it, and what English and Chinese share in that."""

import re
from dataclasses import astuple, dataclass
from datetime import date

from pikobot.memory.language.periods import EveryYear, Period, Understood
from pikobot.memory.language.questions import keywords

ANY_DAY = date(2000, 1, 1)  # for who wants to know only whether a period is named

VERB = "(?:forget|erase|delete|remove|wipe|purge|clear|scrub|unlearn)"
CHINESE_VERB = "(?:忘记|忘記|忘掉|忘了|遗忘|遺忘|删除|刪除|删掉|刪掉|删了|抹掉|抹去|清除|清空|擦除|移除)"
UNCLEAR_DAY = re.compile(
    "(?<![\\d/.-])\\d{1,2}[/.-]\\d{1,2}(?:[/.-]\\d{2,4})?(?![\\d/.-])"
)  # of two readings
_CHINESE_THAT = re.compile(
    "^(?:这|這|那)(?:(?:一)?[只隻个個位家件条條句次场場张張本辆輛台部段]|(?=[一二两兩三四五六七八九十百千万萬\\d]))"
)
CHINESE_MATTER = re.compile(
    "(?:的|这|這|那)?(?:件|回)?(?:事情|事儿|事兒|事)$|(?:的|这|這|那)(?:一)?(?:句|条|條|段)(?:话|話|消息|记录|記錄)?$"
)


@dataclass(frozen=True)
class ForgetRequest:
    """What is asked for: one of this conversation, its last exchange, everything, a period, or all of some words.

    With a period the words are looked for in what was said in it; ``owner_only``: by the owner. ``is_said_by``: the
    words name somebody, and what that one has said is meant.
    """

    this_thread: bool = False
    last_exchange: bool = False
    everything: bool = False
    period: Period | None = None
    owner_only: bool = False
    words: tuple[str, ...] = ()
    is_said_by: bool = False


def about(topic: str, *, period: Period | None = None, owner_only: bool = False) -> ForgetRequest | None:
    words = tuple(keywords(_CHINESE_THAT.sub("", CHINESE_MATTER.sub("", topic))))
    return ForgetRequest(words=words, period=period, owner_only=owner_only) if words else None


def said_in(understood: Understood) -> Period:
    """The days that a request means: of a month or a day without a year those of every year."""
    return EveryYear(*astuple(understood.period)) if understood.is_yearly else understood.period
