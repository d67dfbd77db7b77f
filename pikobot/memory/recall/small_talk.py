"""What people say to pikobot beside telling or asking it anything: a greeting, thanks, a command without its slash.

Recall mode answers these without looking for their words, and never quotes them. Only a text that is nothing else is
one of them. `wants` knows what asks for more than recall mode can do; as it may be a note as well, it is kept like one.
"""

import re
from typing import Literal

from pikobot.store.text.segmentation import fold, pieces

SmallTalk = Literal["greeting", "thanks", "today", "help", "leave", "undo", "erase", "abilities", "owner"]
Wish = Literal["reminder", "work"]

_KINDS: list[tuple[SmallTalk, re.Pattern[str]]] = [
    (
        "greeting",
        re.compile(
            "(?:hi|hello|hey|good (?:morning|afternoon|evening))(?: there| again)?(?: pikobot)?|"
            "(?:(?:hi|hello|hey) (?:there )?)?(?:how are (?:you|things)(?: (?:doing|today))?|how is it going|"
            "what is (?:up|new)|how do you do)|(?:are )?you there|"
            "(?:你好 ?)?(?:[你您]?(?:(?:还|還)?在|好)[吗嗎么麼]|[你您]?在不在|"
            "[你您]?最近(?:好[吗嗎]|怎[么麼]?[样樣])|有人[吗嗎])|"
            "(?:你好|您好|嗨|哈喽|哈囉|早上好|上午好|下午好|晚上好|早安|大家好)[啊呀吗嗎]?(?: pikobot)?"
        ),
    ),
    (
        "thanks",
        re.compile(
            "(?:ok(?:ay)? |great |perfect )?(?:thanks|thank you|thx|cheers|much appreciated)"
            "(?: (?:so much|very much|a lot|again|pikobot|for (?:that|this|your help|the help)))*|"
            "(?:好的?|太好了)? ?(?:非常|十分)?"
            "(?:多谢|多謝|谢谢|謝謝|感谢|感謝|谢了|谢啦|辛苦了)[你您啦了啊]*(?: pikobot)?"
        ),
    ),
    (
        "today",
        re.compile(
            "what(?: day| date)? is (?:it )?today|what (?:day|date)(?: of the week)? is (?:it|today)(?: today| now)?|"
            "what is (?:today s|the)(?: current)? (?:date|day)(?: today)?|"
            "(?:请问|請問)?今天(?:的?日期)?是?(?:几月)?(?:几号|幾號|几日|星期几|星期幾|周几|礼拜几|什么日期|几月几[号日])"
            "(?:了|啊|呀|来着)?|今天的?日期(?:是什么)?"
        ),
    ),
    (
        "help",
        re.compile(
            "help(?: me| please)?|(?:please )?(?:show|list)(?: me)?(?: the| all)? (?:help|commands)|commands|"
            "(?:请|請)?(?:帮助|幫助|求助|帮帮我|命令|有(?:什么|哪些)命令|显示(?:帮助|命令))"
        ),
    ),
    (
        "leave",
        re.compile(
            "exit|quit|q|logout|log out|leave|(?:good ?)?bye(?: bye| now| pikobot)?|see you(?: later| soon| tomorrow)?|"
            "good night|退出|离开|離開|关闭|關閉|结束|再见|再見|拜拜|晚安|明天见|回头见"
        ),
    ),
    (
        "undo",
        re.compile(
            "(?:please )?(?:undo|revert|restore|undelete|bring back)"
            "(?: (?:that|it|this|the last (?:one|message|command)|what (?:i|you|was) (?:just )?"
            "(?:deleted|erased|forgot|forgotten)|the deleted (?:message|one)s?))?|"
            "(?:请|請)?(?:撤[销銷回消]|恢复|恢復|还原|還原|取消删除)(?:一下)?(?:上一[条條个個次步]|刚才|剛才|刚刚|我)*"
            "(?:的?(?:删掉|删除|刪除|删|忘掉|忘记|操作|说|说过))?了?的?(?:那[条条个]|东西|内容|话|记录|消息)*"
        ),
    ),
    (
        "erase",
        re.compile(
            "how (?:do|can|could|would|should) (?:i|you|one|we) (?:make you )?(?:delete|erase|forget|remove)"
            "(?: (?:something|anything|things|it|that|a message|messages|what i said|a memory|memories|everything|"
            "my data|from memory|again))*|how to (?:delete|erase|forget|remove)(?: (?:something|a message|messages))?|"
            "(?:我(?:该|要|想)?)?(?:怎[么麼样]|如何)(?:才能|能|可以)?(?:让你|把)?"
            "(?:东西|内容|记录|消息|一条|说过的话)*(?:删除|刪除|删掉|删|忘掉|忘记|清除)(?:掉)?"
            "(?:一条|一些|我?说过的|某|我的|这)*(?:东西|内容|记录|消息|话|事|记忆|数据)?[呢啊]?"
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
            "(?:how (?:can|do) i |can i |show me |list )?(?:see |view |list )?(?:everything |all )?(?:what |that )?you "
            "(?:know|remember|have stored|stored|have kept|kept|have learned|learned)(?: so far)?(?: about me)?|"
            "tell me (?:everything |all |something )?(?:(?:what |that )?you (?:know|remember) )?about me|"
            "你(?:都)?(?:知道|了解|瞭解|[记記]得|[记記]住了?)(?:些)?(?:[关關]于|[关關]於)?我的?"
            "(?:些)?(?:什么|什麼|啥|哪些|多少)(?:事|事情|信息|东西)?|"
            "(?:[关關][于於]我)?你(?:都)?(?:知道|了解|瞭解|[记記]得|[记記]住了?)(?:些)?(?:什么|什麼|啥)|"
            "你(?:了解|瞭解|[认認][识識]|[记記]得)我[吗嗎]|"
            "(?:怎[么麼样]|如何|在哪里?)?(?:才能|能|可以)?(?:查看|看到?|列出)你(?:都)?(?:存|[记記]住?|保存|知道)(?:了|的)?"
            "(?:些)?(?:什么|什麼|哪些|内容|东西|所有内容)?"
        ),
    ),
]


def small_talk_of(text: str) -> SmallTalk | None:
    said = " ".join(pieces(text)).replace("what s ", "what is ")
    return next((kind for kind, pattern in _KINDS if pattern.fullmatch(said)), None)


_REMINDER = re.compile(
    "(?:please |can you |could you )*(?:remind me|set (?:a|an|the) (?:reminder|alarm|timer)|wake me)\\b|"
    "(?:请|請|麻烦|你|能不能|能|可以|帮我|到时候?|明天|记得)*(?:提醒我|提醒一下|叫醒我|设(?:个|置|一个)?(?:闹钟|提醒))"
)
_WORK = re.compile(
    "(?:please |can you |could you )*(?:summari[sz]e|sum up|translate|explain|calculate|compare|rewrite|paraphrase|"
    "recommend|suggest)\\b|"
    "(?:请|請|麻烦|你|能不能|能|可以|帮我|给我)*"
    "(?:总结|總結|概括|归纳|翻译|翻譯|解释|解釋|推荐|推薦|计算|改写)(?![会會报報书書信员員官师師社公])"
)


def wants(text: str) -> Wish | None:
    """What a text asks to be done that takes a clock or a model."""
    said = fold(text).strip()
    if _REMINDER.match(said):
        return "reminder"
    return "work" if _WORK.match(said) else None
