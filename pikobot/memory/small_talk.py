"""What people say to pikobot before they tell or ask it anything: a greeting, what it can do, what it knows of them.

Recall mode answers these without looking for their words. Only a text that is nothing else is one of them.
"""

import re
from typing import Literal

from pikobot.store.segmentation import pieces

SmallTalk = Literal["greeting", "abilities", "owner"]

_KINDS: list[tuple[SmallTalk, re.Pattern[str]]] = [
    (
        "greeting",
        re.compile(
            "(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: there| again)?(?: pikobot)?|"
            "(?:你好|您好|嗨|哈喽|哈囉|早上好|上午好|下午好|晚上好|早安|大家好)[啊呀吗嗎]?(?: pikobot)?"
        ),
    ),
    (
        "abilities",
        re.compile(
            "(?:so )?what (?:can|could) you do(?: for me)?|what are you(?: able to do)?|who are you|what is pikobot|"
            "how do (?:you work|i use (?:you|this|pikobot))|how can you help(?: me)?|"
            "你(?:都)?(?:能|会|會|可以)(?:[帮幫]我)?(?:[做干幹]|[帮幫]我?)(?:[点點些])?(?:什么|什麼|啥)(?:事|事情)?|"
            "你是[谁誰]|你有(?:什么|什麼|哪些)(?:功能|用)|(?:我该|我)?怎[么麼]用你?|你怎[么麼]用"
        ),
    ),
    (
        "owner",
        re.compile(
            "(?:so )?what (?:all |else )?(?:do|did|have) you (?:know|remember|learn|learned|stored|kept|noted)"
            "(?: so far)?(?: about me)?(?: so far)?|what is (?:known|stored) about me|"
            "do you (?:know|remember) (?:me|anything about me)|"
            "tell me (?:everything |all |something )?(?:(?:what |that )?you (?:know|remember) )?about me|"
            "你(?:都)?(?:知道|了解|瞭解|[记記]得|[记記]住了?)(?:些)?(?:[关關]于|[关關]於)?我的?"
            "(?:些)?(?:什么|什麼|啥|哪些|多少)(?:事|事情|信息|东西)?|"
            "(?:[关關][于於]我)?你(?:都)?(?:知道|了解|瞭解|[记記]得|[记記]住了?)(?:些)?(?:什么|什麼|啥)|"
            "你(?:了解|瞭解|[认認][识識]|[记記]得)我[吗嗎]"
        ),
    ),
]


def small_talk_of(text: str) -> SmallTalk | None:
    said = " ".join(pieces(text)).replace("what s ", "what is ")
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(said)), None)
