"""What is degraded, in Chinese: the reasons are made elsewhere, in English, and put together from phrases.

A phrase that is not known here stays as it is; names of settings and commands always do.
"""

import re

from pikobot.memory.language.questions import Language

_PHRASES = [
    (re.compile(english), chinese)
    for english, chinese in (
        ("no chat model: recall mode", "没有聊天模型，处于回忆模式"),
        (
            r"; set (\w+) or chat_api_key in credentials\.toml",
            r"；设置 \1，或在 credentials.toml 中写入 chat_api_key",
        ),
        (r"; set chat\.provider to turn one on", "；设置 chat.provider 可启用"),
        ("text search only: ", "只按文字搜索："),
        (": text search only", "：只按文字搜索"),
        (r"no key for (\S+); set (\w+)", r"没有 \1 的密钥；设置 \2"),
        (r", or embedding\.provider=e5 for a local model", "，或用 embedding.provider=e5 选择本地模型"),
        ("nothing is embedded yet", "还没有生成向量"),
        (r"the vectors are of (\S+) until the new ones are made", r"新向量生成之前仍是 \1 的向量"),
        (r"the vectors are of (\S+) until they are made anew, and ", r"重新生成之前仍是 \1 的向量；"),
        (r"(\S+) is no longer at (\S+), where they were made", r"\1 不再是生成它们的 \2"),
        (r"(\S+) no longer holds the model that made them", r"\1 中不再是生成它们的模型"),
        (
            "this version of pikobot embeds otherwise than they were embedded",
            "这个版本的 pikobot 生成方式不同",
        ),
        (r"(\d+) texts? (?:is|are) embedded and more wait", r"已有 \1 条文字生成向量，其余在等待"),
        (r"embedding failed \((\w+)\)", r"生成向量失败（\1）"),
        (r" \(last tried ([^)]+)\)", r"（上次尝试：\1）"),
        ("^retention: ", "保留期限："),
        (r": no connection; check the network and (\S+)", r"：无法连接；检查网络和 \1"),
        (": the provider limits the rate", "：服务商限制了频率"),
        (r": the provider refused the request; check (\S+) and (\S+)", r"：服务商拒绝了请求；检查 \1 和 \2"),
        (r": the provider refused the key; check (\S+)", r"：服务商拒绝了密钥；检查 \1"),
        (": the provider wants to be paid; top up the account there", "：服务商要求付费；请在那里充值"),
        (
            r": the provider knows no such model or path; check (\S+) and (\S+)",
            r"：服务商没有这个模型或路径；检查 \1 和 \2",
        ),
        (": the provider failed", "：服务商出错"),
        (": no answer came in time", "：没有及时得到回答"),
        (": the connection broke", "：连接中断"),
        ("; it is asked again later", "；稍后会再试"),
        (r": the answer was no list of embeddings; check (\S+)", r"：回答不是向量列表；检查 \1"),
        (r": the answer was too large; check (\S+) and (\S+)", r"：回答过大；检查 \1 和 \2"),
        (
            r": the vectors have another length; set (\S+) to that of the model",
            r"：向量长度不符；把 \1 设为模型的长度",
        ),
        (r": the model made a vector that is none; check (\S+)", r"：模型生成的向量无效；检查 \1"),
        (
            r": the local model could not be loaded; check (\S+) and (\S+)",
            r"：无法加载本地模型；检查 \1 和 \2",
        ),
        (": the process of the local model ended; it is started again", "：本地模型的进程已结束；会重新启动"),
        (r": a budget is spent; (\S+) and (\S+) say how much", r"：预算已用完；上限见 \1 和 \2"),
    )
]


def spoken_reason(reason: str, language: Language) -> str:
    """The reason in that language, as far as its phrases are known."""
    if language == "zh":
        for english, chinese in _PHRASES:
            reason = english.sub(chinese, reason)
    return reason
