"""Failures and notices in Chinese: they are made elsewhere, in English, and known here as whole sentences.

A sentence that is not known here stays as it is. What stands in one for somebody else's words (a name, what a provider
has said) is taken over untouched, as are the names of settings and commands.
"""

import re

from pikobot.memory.language.questions import Language

_KINDS = {"source": "来源", "fact": "事实"}
_PLACES = {"the message": "消息", "the thread's name": "话题名称", "the query": "搜索内容", "text": "文字"}
_CHARGED = "(; it may have charged, so the request is not repeated|)"

_SENTENCES = [
    (re.compile(english, re.DOTALL), chinese)
    for english, chinese in (
        # What a command asks for
        (
            r"(source|fact)s? (.+?)(?: and (\d+) more)? do(?:es)? not exist; `(.+)` finds \w+s; nothing was forgotten",
            "没有{kind[1]} {2}{more[3]}；可用 `{4}` 查找；什么都没有删除",
        ),
        (r"thread (.+) does not exist; `(.+)` lists threads", "没有话题 {1}；`{2}` 列出全部话题"),
        (
            r"thread: several conversations have that name; give the id, see threads\.list",
            "有几个话题都叫这个名字：请给出编号（thr_…），见 `pikobot rpc threads.list`",
        ),
        ("to: is before from", "结束日期早于开始日期"),
        (r"there is no such date: (.+)", "没有这个日期：{1}"),
        ("the text to forget is empty", "没有说明要删除哪段文字"),
        ("nothing that is retained matches; nothing was forgotten", "没有匹配的内容；什么都没有删除"),
        ("this terminal cannot erase: nothing was changed", "这个终端不能删除：什么都没有改变"),
        (r"there is no conversation (.+)", "没有对话 {1}"),
        (r"there is no workspace (.+)", "没有工作区 {1}"),
        # What stands in the way of a chat
        (
            r"the instance (.+) is served by process (\d+) since (\S+): talk to it with `(.+)`, or stop it "
            r"\(`(.+)`\) and try again",
            "{1} 正由进程 {2} 使用（始于 {3}）：用 `{4}` 与它对话，或停止它（`{5}`）后再试",
        ),
        (
            r"the instance (.+) is served by another process: talk to it with `(.+)`, or stop it and try again",
            "{1} 正由另一个进程使用：用 `{2}` 与它对话，或停止它后再试",
        ),
        (
            r"the instance (.+) is in use by another command: try again when it has ended",
            "{1} 正被另一个命令使用：等它结束后再试",
        ),
        (
            r"the instance (.+) is being restored: try again when that has ended",
            "{1} 正在恢复：等恢复结束后再试",
        ),
        (
            "--ephemeral keeps nothing, so it has no --thread: leave one of them out",
            "--ephemeral 不保留任何内容，不能与 --thread 同用",
        ),
        (
            r"stdin has more than (\d+) bytes; load long documents with `(.+)`",
            "输入超过 {1} 字节；长文档请用 `{2}` 导入",
        ),
        (
            r"stdin is not UTF-8 text: invalid byte at position (\d+)",
            "输入不是 UTF-8 文本：位置 {1} 的字节无效",
        ),
        # What is said
        (
            r"(.+) has (\d+) characters; at most (\d+) are accepted",
            "{place[1]}有 {2} 个字符，最多接受 {3} 个",
        ),
        (
            r"(.+) has a NUL character at position (\d+); remove it",
            "{place[1]}的第 {2} 位是 NUL 字符，请去掉",
        ),
        (
            r"(.+) has half a surrogate pair at position (\d+); it is not valid text",
            "{place[1]}的第 {2} 位是半个代理对，不是有效文字",
        ),
        # What an answer is made under
        (r"(\d+) messages? (?:is|are) not shown to the model, the oldest", "最早的 {1} 条消息没有给模型看"),
        (r"the answer is cut off at chat\.max_output_tokens", "回答达到 chat.max_output_tokens，被截断"),
        ("the provider's content filter cut the answer off", "服务商的内容过滤截断了回答"),
        (
            "something this answer was made from has been forgotten; it is made again",
            "这个回答所依据的内容已被忘记，正在重新回答",
        ),
        ("the model gave an empty answer; ask again", "模型给出了空的回答：请再问一次"),
        (
            r"no whole answer within chat\.run_timeout_s = (.+); ask again",
            "在 chat.run_timeout_s = {1} 秒内没有得到完整回答：请再问一次",
        ),
        (
            r"the model kept calling tools after (\d+) rounds; ask again",
            "模型在 {1} 轮之后仍在调用工具：请再问一次",
        ),
        (
            "the request was cut off while the model answered; the call may have been charged, so it is not repeated "
            "by itself: ask again if you still need the answer",
            "请求在模型回答时中断；那次调用可能已经计费，因此不会自动重试：如果还需要回答，请再问一次",
        ),
        (
            r"the answer was begun (\d+) times and pikobot stopped before its end each time: ask again",
            "回答开始了 {1} 次，每次 pikobot 都在完成前停止：请再问一次",
        ),
        (
            r"the request and the newest messages before it take about (\d+) tokens, the model's context has room for "
            r"(\d+): raise chat\.context_tokens, or start a new thread",
            "请求和之前最新的消息约需 {1} 个 token，模型的上下文只容得下 {2} 个：调高 chat.context_tokens，或另起话题",
        ),
        (
            r"the call may cost up to (\S+) and (\S+) of (\S+) \((\S+)\) are used: raise \S+ with `(.+)`, or wait",
            "这次调用最多可能花费 {1}，而 {3}（{4}）已用去 {2}：用 `{5}` 调高，或等待",
        ),
        (
            r"the price of (\S+) at (\S+) is not known, so the budget cannot be kept: set it with `(.+)` \(.+\)",
            "不知道 {2} 上 {1} 的价格，无法遵守预算：用 `{3}` 设置（每百万 token 的美元价格，免费则为 0）",
        ),
        (
            r"the answer failed inside pikobot \((.+)\); please report this place",
            "pikobot 内部出错，没有得到回答（{1}）：请报告这个位置",
        ),
        (
            r"run (\S+) ended without an outcome: ask again; `(.+)` may know more",
            "请求 {1} 没有结果：请再问一次；`{2}` 可能知道原因",
        ),
        # What a provider does
        (
            r"no connection to (\S+) \((\w+)\); check the network and (\S+)",
            "无法连接 {1}（{2}）；检查网络和 {3}",
        ),
        (
            r"(\S+) is not an address that can be called; it looks like (\S+)",
            "{1} 不是可以访问的地址；应类似 {2}",
        ),
        (
            rf"the connection to (\S+) broke before the answer was complete \((\w+)\){_CHARGED}",
            "与 {1} 的连接在回答完成前中断（{2}）{charged[3]}",
        ),
        (
            rf"(\S+) sent nothing for (\S+) s{_CHARGED}; a slow model needs a higher (\S+)",
            "{1} 在 {2} 秒内没有任何回应{charged[3]}；模型较慢时调高 {4}",
        ),
        (r"(\S+) wants an API key; set (\S+) (\(HTTP \d+\)): (.*)", "{1} 需要 API 密钥；设置 {2} {3}：{4}"),
        (
            r"(\S+) refused the API key; check (\S+) (\(HTTP \d+\)): (.*)",
            "{1} 拒绝了 API 密钥；检查 {2} {3}：{4}",
        ),
        (
            r"(\S+) is limiting the rate of requests; wait a little (\(HTTP \d+\)): (.*)",
            "{1} 限制了请求频率；请稍等 {2}：{3}",
        ),
        (
            r"(\S+) wants to be paid; top up the account there (\(HTTP \d+\)): (.*)",
            "{1} 要求付费；请在那里充值 {2}：{3}",
        ),
        (
            r"(\S+) knows no such model or path; check (\S+) and (\S+) (\(HTTP \d+\)): (.*)",
            "{1} 没有这个模型或路径；检查 {2} 和 {3} {4}：{5}",
        ),
        (rf"(\S+) failed{_CHARGED} (\(HTTP \d+\)): (.*)", "{1} 出错{charged[2]} {3}：{4}"),
        (
            r"(\S+) sends requests elsewhere; set (\S+) to the final address (\(HTTP \d+\)): (.*)",
            "{1} 把请求转到别处；把 {2} 设为最终地址 {3}：{4}",
        ),
        (
            r"(\S+) refused the request; check (\S+) and the settings of (\S+) (\(HTTP \d+\)): (.*)",
            "{1} 拒绝了请求；检查 {2} 和 {3} 的设置 {4}：{5}",
        ),
        (
            "the model's answer broke off before its end; it may have been charged",
            "模型的回答中途断开；可能已经计费",
        ),
        (r"the model's provider reported an error in its answer: (.*)", "模型服务商在回答中报告了错误：{1}"),
        (
            r"the model's provider sent .+; it may have been charged; check that its base_url is .+",
            "模型服务商的回答无法识别；可能已经计费；检查它的 base_url 是否为兼容 OpenAI 的地址",
        ),
        (
            r"the model's provider ended the answer with (.+), before it was complete; it may have been charged",
            "模型服务商以 {1} 提前结束了回答；可能已经计费",
        ),
        (
            r"the model's provider sent an event of more than (\d+) bytes; the answer was given up",
            "模型服务商发来超过 {1} 字节的数据，已放弃这个回答",
        ),
        (
            r"the model's answer is larger than (\d+) bytes and was given up; lower (\S+)",
            "模型的回答超过 {1} 字节，已放弃；调低 {2}",
        ),
        (
            r"(\S+) answered with something that is not a chat completion stream; check that (\S+) is the .+",
            "{1} 的回应不是聊天回答；检查 {2} 是否为兼容 OpenAI 的地址",
        ),
        (
            r"the API key has characters that no key has; set (\S+) again",
            "API 密钥中有密钥不会有的字符；重新设置 {1}",
        ),
        ("the model adapter ended its stream without a completion", "模型的回答没有正常结束"),
        # What the database does
        (
            r"the database is damaged \((.+)\); copy the instance directory, then see RECOVERY\.md",
            "数据库已损坏（{1}）：先复制实例目录，再见 RECOVERY.md",
        ),
        (
            r"another process is writing to the database \(.+\); try again",
            "另一个进程正在写入数据库；请再试一次",
        ),
        (
            r"the disk is full \(.+\); nothing was changed, free some space",
            "磁盘已满；什么都没有改变，请腾出空间",
        ),
        (r"the disk is full \(.+\); free some space", "磁盘已满；请腾出空间"),
        (
            r"(\S+) was (deleted or moved|replaced by another file) while it was in use\..*",
            "{1} 在使用中被删除、移动或替换，什么都没有保存：见 RECOVERY.md",
        ),
    )
]


def spoken_failure(sentence: str, language: Language) -> str:
    """The sentence in that language, if it is known."""
    if language == "zh":
        for english, chinese in _SENTENCES:
            if found := english.fullmatch(sentence):
                groups = ("", *(group or "" for group in found.groups()))
                return chinese.format(
                    *groups,
                    kind=[_KINDS.get(each, each) for each in groups],
                    place=[_PLACES.get(each, each) for each in groups],
                    more=[f" 等另外 {each} 个" if each else "" for each in groups],
                    charged=["；可能已经计费，因此不会重试" if each else "" for each in groups],
                )
    return sentence
