"""Every sentence that the terminal itself says, in English and in Chinese.

The language is that of the conversation, Chinese or English: that of its last message in a clear one, Chinese when
there is any CJK character, English when there are two words without any, for "ok" and "Porto" are said in both. A
command that is Chinese, or has an argument in a clear language, is answered in that. Before the first message the
locale decides. What others say, failures and what is degraded, is put into Chinese by `failures` and `reasons`.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from pikobot.channels.terminal.slash import CHINESE, CommandName
from pikobot.memory.language import questions
from pikobot.memory.language.questions import Language


@dataclass(frozen=True)
class Wording:
    language: Language
    made_instance: str
    meaning_off: str
    greeting_model: str
    greeting_recall: str
    recall_notice: str
    ephemeral_notice: str
    resumed: str
    resumed_new: str
    cut_off: str
    thread_without_name: str
    never: str
    leave_hint: str
    toolbar: str
    stopped: str
    waiting: str
    stopping: str
    searching_memory: str
    reading_source: str
    checking_evidence: str
    remembering: str
    searching_history: str
    looking_what_goes: str
    using_tool: str
    retrying: str
    failed_without_reason: str
    incomplete: str
    error: str
    unknown_command: str
    nearest: str
    help_hint: str
    help: str
    empty_message: str
    interactive_only: str
    new_thread: str
    no_threads: str
    threads_hint: str
    threads_more: str
    thread_number: str
    messages: str
    one_message: str
    nothing_to_stop: str
    stopped_runs: str
    which_thread: str
    nothing_said_here: str
    nothing_to_forget: str
    already_forgotten: str
    forget_held_by_fact: str
    forget_facts: str
    forget_threads: str
    forget_threads_without_name: str
    forget_inside: str
    forget_changed: str
    forget_more: str
    forget_more_with_all: str
    forget_question: str
    forget_confirm_flag: str
    forget_proposed: str
    forget_must_be_seen: str
    confirmation: str
    kept: str
    scrollback: str
    why_no_answer: str
    why_conversation_alone: str
    why_heading: str
    why_facts: str
    why_statements: str
    why_at_hand: str
    why_explicit: str
    why_inferred: str
    why_context: str
    why_replaced: str
    why_replaced_by: str
    why_conflict: str
    why_said: str
    why_you: str
    no_date: str
    why_assistant: str
    why_forgetting: str
    status_labels: Mapping[str, str]
    status_terms: Mapping[str, str]
    status_comma: str
    status_nested: str
    status_unlearned: str
    status_vectors: str
    status_none: str
    status_spend: str
    status_reserved: str
    retention_days: str
    retention_most: str
    retention_waiting: str
    retention_swept: str
    embedding_off: str
    embedding_building: str
    embedding_counts: Mapping[str, str]


EN = Wording(
    language="en",
    made_instance="made a new instance at {root}; `pikobot init` changes its settings",
    meaning_off="search by meaning is off; the local model is installed: `pikobot init --set embedding.provider=e5` "
    "turns it on, and it sends nothing",
    greeting_model="pikobot with {model}. /help lists the commands; Ctrl-C stops an answer.",
    greeting_recall="pikobot in recall mode. /help lists the commands; Ctrl-C stops an answer.",
    recall_notice=(
        "No model is configured: what you say is stored, and questions are answered by quoting it.\n"
        "To turn a model on: choose it with chat.provider in config.toml, which is deepseek at first, and "
        "`export PIKOBOT_CHAT_API_KEY=…` or put chat_api_key into credentials.toml."
    ),
    ephemeral_notice="Ephemeral: nothing of this conversation is kept, and each message stands alone.",
    resumed="Resuming {title}; last message {date}.",
    resumed_new="Thread “{name}” starts with your next message.",
    cut_off=(
        "The last request of this conversation was cut off while the model answered; the call may have been charged. "
        "It is not repeated by itself: ask again if you still need the answer."
    ),
    thread_without_name="unnamed",
    never="never",
    leave_hint="Press Ctrl-C again or type /quit to leave.",
    toolbar="{thread} · {model} · Alt-Enter: new line · /help",
    stopped="Stopped.",
    waiting="thinking…",
    stopping="stopping… (Ctrl-C again leaves)",
    searching_memory="searching memory…",
    reading_source="reading a source…",
    checking_evidence="checking the evidence…",
    remembering="remembering…",
    searching_history="looking through the conversation…",
    looking_what_goes="looking what would be erased…",
    using_tool="using {name}…",
    retrying="{reason}; trying again in {pause} s",
    failed_without_reason="the answer failed; `pikobot doctor` shows what works",
    incomplete="The answer above is incomplete.",
    error="error: {reason}",
    unknown_command="There is no command /{word}.",
    nearest=" Did you mean /{name}?",
    help_hint=" /help lists the commands.",
    help=(
        "/help            this list\n"
        "/status          mode, model, counts, spending\n"
        "/threads [N]     recent conversations; with a number, continue that one\n"
        "/new [NAME]      start another conversation, with a name if you like\n"
        "/stop            cancel what is queued or running in this conversation\n"
        "/why             what the last answer was made from: quotes, dates, speakers\n"
        "/forget          erase the last exchange (shows it and asks first)\n"
        "/forget TEXT     erase what contains TEXT as whole words or was said by a speaker of that name;\n"
        "                 “TEXT” in quotes: also where it stands inside other words\n"
        "/forget thread   erase this whole conversation\n"
        "/forget ID       erase one message (src_…), fact (fact_…) or conversation (thr_…)\n"
        "/forget FROM..TO erase what was said in these days, such as 2024-03-01..2024-03-31\n"
        "/forget … --all  lists everything that would go, not the first twenty only\n"
        "/quit            leave (also /exit, Ctrl-D)\n"
        "//text           send a message that begins with a slash\n"
        "Enter sends, Alt-Enter or Ctrl-J starts a new line, Ctrl-C stops an answer.\n"
        "Without a chat: pikobot run -m '/forget TEXT --yes' erases without asking."
    ),
    empty_message="the message is empty: give the text with -m TEXT, or pipe it in",
    interactive_only="/{name} belongs to the chat: start it with `pikobot run`, or name a thread with --thread NAME",
    new_thread="A new conversation starts with your next message.",
    no_threads="No conversations yet.",
    threads_hint="/threads N continues one of them.",
    threads_more="… and more, older ones: `pikobot rpc threads.list` lists all.",
    thread_number="/threads takes a number from the list: 1 to {count}",
    messages="{count} messages",
    one_message="1 message",
    nothing_to_stop="Nothing is queued or running here.",
    stopped_runs="Stopped: {count}.",
    which_thread="which conversation? Name it with --thread NAME, or give a text or an id to /forget",
    nothing_said_here=(
        "nothing is said in this conversation yet: give a text or an id to /forget, or go on with another by /threads"
    ),
    nothing_to_forget="Nothing matches; nothing is erased.",
    already_forgotten="Already forgotten.",
    forget_held_by_fact=" [a fact learned from it holds the text]",
    forget_facts="Facts that go with it ({count}):",
    forget_threads="Conversations that go as a whole: {names}",
    forget_threads_without_name="{count} without a name",
    forget_inside="“{text}” is also a part of other words ({words}), in {count:message that stays|messages that stay}: "
    "/forget “{text}” with the quotes erases that as well.",
    forget_changed="Nothing was erased: what would go has changed meanwhile. This is it now.",
    forget_more="… and {count} more",
    forget_more_with_all="… and {count} more: with --all at its end, /forget lists every one",
    forget_question="Erase it for good? yes/no [no] ",
    forget_confirm_flag="nothing was erased: add --yes to erase without being asked",
    forget_proposed="Nothing is erased yet: send `yes` next (same --thread, or again none), or add --yes.",
    forget_must_be_seen="Nothing is erased yet, look at it first: send `yes` next (same --thread, or again none).",
    confirmation="yes",
    kept="Nothing is erased.",
    scrollback="What this terminal has already shown stays in its scrollback until you clear it.",
    why_no_answer="There is no answer to explain here yet.",
    why_conversation_alone="The last answer used no memory: nothing but this conversation.",
    why_heading="The last answer, of {time}, had this before it, beside the conversation itself:",
    why_facts="Looked up in memory:",
    why_statements="Statements that were read:",
    why_at_hand="At hand in every answer:",
    why_explicit="[you asked to remember it]",
    why_inferred="[drawn from what was said]",
    why_context="understood from: ",
    why_replaced="it replaced: ",
    why_replaced_by="replaced since by: ",
    why_conflict="contradicted by: ",
    why_said="{day}, {speaker}: “{quote}”  (/forget {id})",
    why_you="you",
    no_date="no date",
    why_assistant="the assistant",
    why_forgetting="Forgetting a statement forgets everything that was made from it.",
    status_labels={
        "version": "version",
        "mode": "mode",
        "model": "model",
        "counts": "counts",
        "extraction": "learning",
        "spend": "this month",
        "unknownOutcomes": "unknown outcomes",
        "retention": "retention",
        "embedding": "search by meaning",
        "degraded": "degraded",
    },
    status_terms={
        "recall": "recall",
        "model": "model",
        "facts": "facts",
        "sources": "sources",
        "threads": "threads",
        "runs": "runs",
        "queued": "queued",
        "leased": "running",
        "succeeded": "succeeded",
        "failed": "failed",
        "cancelled": "cancelled",
        "unknown": "unknown",
    },
    status_comma=", ",
    status_nested="({})",
    status_unlearned="{count:message waits|messages wait} for a model, which learning needs",
    status_vectors="{model}: {counts}",
    status_none="none",
    status_spend="{workspace}: ${spent} of ${budget}",
    status_reserved=" (${reserved} reserved)",
    retention_days="messages are deleted after {count:day}",
    retention_most="a workspace keeps at most {count:message}",
    retention_waiting="{count} to be removed",
    retention_swept="{at}: removed {expired} that had expired, {over} beyond the limit, {facts:fact} with them",
    embedding_off="off",
    embedding_building="being made anew with {line}",
    embedding_counts={
        "vectors": "{count:vector}",
        "waiting": "{count:text waits|texts wait}",
        "failed": "{count} failed",
        "unknown": "{count} may have been charged without an answer",
    },
)

ZH = Wording(
    language="zh",
    made_instance="已建立新实例 {root}；用 `pikobot init` 更改设置",
    meaning_off="按意思搜索未开启；本地模型已安装：`pikobot init --set embedding.provider=e5` 可开启，不发送任何内容",
    greeting_model="pikobot，模型 {model}。/帮助 列出命令；Ctrl-C 停止回答。",
    greeting_recall="pikobot，回忆模式。/帮助 列出命令；Ctrl-C 停止回答。",
    recall_notice=(
        "没有配置模型：你说的话会保存下来，提问时引用原话回答。\n"
        "要启用模型：在 config.toml 的 chat.provider 中选择服务商（起初是 deepseek），再 "
        "`export PIKOBOT_CHAT_API_KEY=…`，或在 credentials.toml 中写入 chat_api_key。"
    ),
    ephemeral_notice="临时模式：本次对话不保留任何内容，每条消息互不相关。",
    resumed="继续话题：{title}；最后一条消息：{date}。",
    resumed_new="话题“{name}”从你的下一条消息开始。",
    cut_off="本对话的最后一个请求在模型回答时中断；那次调用可能已经计费。它不会自动重试：如果还需要回答，请再问一次。",
    thread_without_name="未命名",
    never="无",
    leave_hint="再按一次 Ctrl-C 或输入 /退出 离开。",
    toolbar="{thread} · {model} · Alt-Enter 换行 · /帮助",
    stopped="已停止。",
    waiting="思考中…",
    stopping="正在停止…（再按 Ctrl-C 离开）",
    searching_memory="正在搜索记忆…",
    reading_source="正在读取来源…",
    checking_evidence="正在核对依据…",
    remembering="正在记住…",
    searching_history="正在查找对话记录…",
    looking_what_goes="正在查看会删除什么…",
    using_tool="正在使用 {name}…",
    retrying="{reason}；{pause} 秒后重试",
    failed_without_reason="回答失败；`pikobot doctor` 会显示哪些功能可用",
    incomplete="以上回答不完整。",
    error="错误：{reason}",
    unknown_command="没有命令 /{word}。",
    nearest="你是指 /{name} 吗？",
    help_hint="/帮助 列出命令。",
    help=(
        "/帮助            本列表\n"
        "/状态            模式、模型、数量、花费\n"
        "/话题 [N]        最近的对话；加编号则继续那个对话\n"
        "/新话题 [名称]   开始另一个对话，可以命名\n"
        "/停止            取消本对话中排队或进行中的请求\n"
        "/为什么          上一个回答的依据：原话、日期、说话人\n"
        "/忘记            删除最近一问一答（先显示并询问）\n"
        "/忘记 文字       删除所有包含该文字、或说话人叫这个名字的消息；英文按整词查找，加引号则不限\n"
        "/忘记 话题       删除整个对话\n"
        "/忘记 编号       删除一条消息（src_…）、一条事实（fact_…）或一个话题（thr_…）\n"
        "/忘记 起..止     删除这些天里说过的话，如 2024-03-01..2024-03-31\n"
        "/忘记 … --all    列出将被删除的全部内容，不只前二十条\n"
        "/退出            离开（也可 Ctrl-D）\n"
        "//文字           发送以斜杠开头的消息\n"
        "回车发送，Alt-Enter 或 Ctrl-J 换行，Ctrl-C 停止回答。\n"
        "不进入对话：pikobot run -m '/忘记 文字 --yes' 直接删除，不再询问。"
    ),
    empty_message="消息为空：用 -m 文字 给出内容，或从管道输入",
    interactive_only="/{name} 只在对话中使用：运行 `pikobot run` 进入对话，或用 --thread 名称 指定话题",
    new_thread="新的对话从你的下一条消息开始。",
    no_threads="还没有对话。",
    threads_hint="/话题 N 继续其中一个。",
    threads_more="……还有更早的：`pikobot rpc threads.list` 列出全部。",
    thread_number="/话题 需要列表中的编号：1 到 {count}",
    messages="{count} 条消息",
    one_message="1 条消息",
    nothing_to_stop="这里没有排队或进行中的请求。",
    stopped_runs="已停止：{count}。",
    which_thread="哪个对话？用 --thread 名称 指定，或给 /忘记 一段文字或编号",
    nothing_said_here="本对话还没有消息：给 /忘记 一段文字或编号，或用 /话题 继续另一个对话",
    nothing_to_forget="没有匹配的内容；什么都没有删除。",
    already_forgotten="已经忘记过了。",
    forget_held_by_fact="［由此得出的事实中有该文字］",
    forget_facts="随之删除的事实（{count} 条）：",
    forget_threads="整个删除的话题：{names}",
    forget_threads_without_name="{count} 个未命名的话题",
    forget_inside="另有 {count} 条消息只在其他词里含有“{text}”（{words}），不会删除："
    "加引号的 /忘记 “{text}” 会一并删除。",
    forget_changed="没有删除任何内容：要删除的内容刚刚有变化。现在是：",
    forget_more="… 还有 {count} 条",
    forget_more_with_all="… 还有 {count} 条：在 /忘记 后加上 --all 会全部列出",
    forget_question="确定永久删除吗？是/否 [否] ",
    forget_confirm_flag="没有删除任何内容：加上 --yes 直接删除，不再询问",
    forget_proposed="尚未删除：接着用同一个 --thread（或同样不带）发送“是”，或在请求后加上 --yes。",
    forget_must_be_seen="尚未删除，请先看清楚：接着用同一个 --thread（或同样不带）发送“是”。",
    confirmation="是",
    kept="什么都没有删除。",
    scrollback="终端里已经显示的内容会留在它的回滚缓冲区中，直到你清除。",
    why_no_answer="这里还没有可以说明的回答。",
    why_conversation_alone="上一个回答没有使用记忆，只用了这段对话。",
    why_heading="上一个回答（{time}）除对话本身外，还依据了：",
    why_facts="查到的记忆：",
    why_statements="读过的原话：",
    why_at_hand="每次回答都带着的：",
    why_explicit="［你要求记住的］",
    why_inferred="［从说过的话中得出］",
    why_context="联系上文：",
    why_replaced="取代了：",
    why_replaced_by="后来被取代：",
    why_conflict="与此矛盾：",
    why_said="{day}，{speaker}：“{quote}”（/忘记 {id}）",
    why_you="你",
    no_date="日期不明",
    why_assistant="助手",
    why_forgetting="忘记一条原话，会一并忘记由它得出的一切。",
    status_labels={
        "version": "版本",
        "mode": "模式",
        "model": "模型",
        "counts": "数量",
        "extraction": "学习",
        "spend": "本月花费",
        "unknownOutcomes": "结果未知",
        "retention": "保留期限",
        "embedding": "按意思搜索",
        "degraded": "受限",
    },
    status_terms={
        "recall": "回忆模式",
        "model": "模型",
        "facts": "事实",
        "sources": "原话和回答",
        "threads": "对话",
        "runs": "请求",
        "queued": "排队",
        "leased": "进行中",
        "succeeded": "成功",
        "failed": "失败",
        "cancelled": "已取消",
        "unknown": "结果未知",
    },
    status_comma="，",
    status_nested="（{}）",
    status_unlearned="{count} 条消息等待模型；没有模型不能学习",
    status_vectors="{model}：{counts}",
    status_none="无",
    status_spend="{workspace}：${spent}，上限 ${budget}",
    status_reserved="（预留 ${reserved}）",
    retention_days="消息保留 {count} 天",
    retention_most="每个工作区最多保留 {count} 条消息",
    retention_waiting="{count} 条等待删除",
    retention_swept="{at}：删除了过期的 {expired} 条、超出上限的 {over} 条，以及由此得出的 {facts} 条事实",
    embedding_off="未开启",
    embedding_building="正在换用 {line}",
    embedding_counts={
        "vectors": "{count} 个向量",
        "waiting": "{count} 条等待处理",
        "failed": "{count} 条失败",
        "unknown": "{count} 条可能已计费但没有结果",
    },
)


def wording(language: Language) -> Wording:
    return ZH if language == "zh" else EN


def spelled(name: CommandName, language: Language) -> str:
    """The name of a command in that language."""
    return CHINESE[name] if language == "zh" else name.value


def clear_language(text: str) -> Language | None:
    """The language that a text is certainly written in: Chinese with any CJK character, English with two words."""
    words = [word for word in text.split() if any(map(str.isalpha, word))]
    language = questions.language_of(text)
    return language if words and (language == "zh" or len(words) > 1) else None


def locale_language(environ: Mapping[str, str]) -> Language:
    """The language that the environment asks for, by the order of POSIX: LC_ALL, LC_MESSAGES, LANG."""
    for name in ("LC_ALL", "LC_MESSAGES", "LANG"):
        if value := environ.get(name):
            return "zh" if value.casefold().startswith("zh") else "en"
    return "en"


def tool_activity(words: Wording, name: str) -> str:
    known = {
        "memory_search": words.searching_memory,
        "memory_read": words.checking_evidence,
        "memory_assert": words.remembering,
        "memory_correct": words.remembering,
        "source_forget": words.looking_what_goes,
        "source_read": words.reading_source,
        "query_chat_history": words.searching_history,
    }
    return known.get(name) or words.using_tool.format(name=name)
