from dataclasses import replace
from datetime import date

import pytest

from pikobot.memory.forgetting.requests import asks_to_forget, means_to_forget, read_request
from pikobot.memory.forgetting.words import ForgetRequest
from pikobot.memory.language.periods import EveryYear, Period

TODAY = date(2026, 11, 30)


def words(*named: str) -> ForgetRequest:
    return ForgetRequest(words=named)


def between(first: str, last: str, *, owner_only: bool = False) -> ForgetRequest:
    return ForgetRequest(
        period=Period(date.fromisoformat(first), date.fromisoformat(last)), owner_only=owner_only
    )


def within(first: str, last: str, *named: str, owner_only: bool = False) -> ForgetRequest:
    return replace(between(first, last, owner_only=owner_only), words=named)


def every_march(*named: str) -> ForgetRequest:
    march = EveryYear(date(2026, 3, 1), date(2026, 3, 31))
    return ForgetRequest(period=march, owner_only=True, words=named)


YESTERDAY = ("2026-11-29", "2026-11-29")
THREAD = ForgetRequest(this_thread=True)
LAST = ForgetRequest(last_exchange=True)
EVERYTHING = ForgetRequest(everything=True)

REQUESTS = [
    ("forget that I moved to Porto", words("moved", "porto")),
    ("Please forget that my name is Ana.", words("name", "ana")),
    ("forget my dentist", words("dentist")),
    ("Forget about my dentist, please!", words("dentist")),
    ("can you forget what I told you about my dentist?", words("dentist")),
    ("Please forget my dentist. Thanks!", words("dentist")),
    ("hi pikobot! forget my dentist", words("dentist")),
    ("Pikobot: forget my dentist", words("dentist")),
    ("forget everything about Melanie", words("melanie")),
    ("Forget Melanie", words("melanie")),
    ("erase all memories about the Porto trip", words("porto", "trip")),
    ("delete this conversation", THREAD),
    ("Could you please delete this whole chat?", THREAD),
    ("Could you please delete this chat?", THREAD),
    ("forget what I just said", LAST),
    ("delete the last message", LAST),
    ("forget everything", EVERYTHING),
    ("delete all my data", EVERYTHING),
    ("please forget everything I said in March", every_march()),
    ("Please forget everything I said in March 2024.", between("2024-03-01", "2024-03-31", owner_only=True)),
    ("forget our conversations from last month", between("2026-10-01", "2026-10-31")),
    ("erase everything I said yesterday", between("2026-11-29", "2026-11-29", owner_only=True)),
    (
        "forget everything we talked about between 2024-03-01 and 2024-03-31",
        between("2024-03-01", "2024-03-31"),
    ),
    ("forget what I said yesterday about Ana", within(*YESTERDAY, "ana", owner_only=True)),
    ("Please forget what I told you about Ana yesterday.", within(*YESTERDAY, "ana", owner_only=True)),
    (
        "delete our conversations about the boat from March to May last year",
        within("2025-03-01", "2025-05-31", "boat"),
    ),
    (
        "forget everything I said from March to May last year",
        between("2025-03-01", "2025-05-31", owner_only=True),
    ),
    ("forget that I went to the dentist yesterday", words("went", "dentist", "yesterday")),
    ("忘掉我昨天说的关于安娜的话", within(*YESTERDAY, "安娜", owner_only=True)),
    ("忘掉我昨天关于安娜说的话", within(*YESTERDAY, "安娜", owner_only=True)),
    ("把昨天关于安娜的对话删掉", within(*YESTERDAY, "安娜")),
    ("把我昨天跟你说的安娜的事忘掉", within(*YESTERDAY, "安娜", owner_only=True)),
    ("请忘记我们去年三月到五月聊的关于船的内容", within("2025-03-01", "2025-05-31", "船")),
    ("请忘掉我去年三月到五月说过的话", between("2025-03-01", "2025-05-31", owner_only=True)),
    ("忘记我的牙医", words("牙医")),
    ("请忘记小红", words("小红")),
    ("忘记我搬到波尔图了", words("搬到波尔图")),
    ("忘了我的牙医吧", words("牙医")),
    ("你能忘记我的牙医吗？", words("牙医")),
    ("你好，请忘记我的牙医。谢谢！", words("牙医")),
    ("助手：请忘记我的牙医。", words("牙医")),
    ("忘掉关于小红的一切", words("小红")),
    ("把关于牙医的记录删掉", words("牙医")),
    ("删除关于波尔图的所有内容", words("波尔图")),
    ("删除这个对话", THREAD),
    ("把这个话题删了", THREAD),
    ("忘掉刚才说的话", LAST),
    ("忘掉一切", EVERYTHING),
    ("把所有的对话都删除", EVERYTHING),
    ("把上个月的对话都忘掉", between("2026-10-01", "2026-10-31")),
    ("请忘掉我三月说过的话", every_march()),
    ("把我昨天说的都删掉", between("2026-11-29", "2026-11-29", owner_only=True)),
    ("请帮我把2024年3月的聊天记录全部清除", between("2024-03-01", "2024-03-31")),
    ("删除去年的所有消息", between("2025-01-01", "2025-12-31")),
    ("could you please delete my password hint?", words("password", "hint")),
    ("erase my phone number from memory", words("phone", "number")),
    ("please get rid of my password hint", words("password", "hint")),
    ("Would you mind deleting my address?", words("address")),
    ("I'd like you to remove my address", words("address")),
    ("please remove what I told you about the garage", words("garage")),
    ("can you remove the thing about the garage?", words("garage")),
    ("Stop remembering my dentist", words("dentist")),
    ("please don't remember my dentist", words("dentist")),
    ("forget the last thing I said", LAST),
    ("delete everything I said", EVERYTHING),
    ("delete all", EVERYTHING),
    ("把我说过的全部删掉", EVERYTHING),
    ("清空记忆", EVERYTHING),
    ("删除我所有的数据", EVERYTHING),
    ("把刚才那句删掉", LAST),
    ("删掉刚刚那条消息", LAST),
    ("把上一句删了", LAST),
    ("忘记 coriander 吧", words("coriander")),
    ("忘掉 coriander", words("coriander")),
    ("忘了小红吧", words("小红")),
    ("删掉关于车库的内容", words("车库")),
    ("删除我的密码提示", words("密码提示")),
    ("能不能把我的密码提示删了？", words("密码提示")),
    ("别记得车库了", words("车库")),
    ("不要再记得我的牙医了", words("牙医")),
    ("请别记住我的地址", words("地址")),
    ("Let's forget about Lisbon", words("lisbon")),
    ("You can forget Porto now", words("porto")),
    ("from now on forget my dentist", words("dentist")),
    ("it would be nice if you forgot my zebra", words("zebra")),
    ("I'd appreciate it if you could delete my address", words("address")),
    ("I'd rather you forgot my zebra", words("zebra")),
    ("I wish you would forget my zebra", words("zebra")),
    ("I'd rather you didn't remember my walrus", words("walrus")),
    ("I don't want you to remember my walrus any more", words("walrus")),
    ("You don't need to remember my walrus", words("walrus")),
    ("No need to remember my walrus any longer", words("walrus")),
    ("要是你能忘掉我的斑马就好了", words("斑马")),
    ("最好你把斑马的事忘掉", words("斑马")),
    ("我不想让你记得我的海象", words("海象")),
    ("不用再记得我的海象了", words("海象")),
    ("从现在起忘掉我的牙医", words("牙医")),
    ("forget 2024-03-01..2024-03-31", between("2024-03-01", "2024-03-31")),
    ("请忘记 2024-03-01..2024-03-31", between("2024-03-01", "2024-03-31")),
    ("forget anything about coffee that I said in March", every_march("coffee")),
    ("忘掉我三月说的关于咖啡的话", every_march("咖啡")),
    ("I'd like you to remove the note about Ana's allergy", words("ana", "allergy")),
    ("能不能把香菜那句删了", words("香菜")),
    ("把香菜那条消息忘了吧", words("香菜")),
    ("忘记Bob说的袋鼠", words("bob", "袋鼠")),
    ("忘记那只河马", words("河马")),
    ("忘掉河马和香菜", words("河马", "香菜")),
    ("forget Lisbon, Madrid and Porto", words("lisbon", "madrid", "porto")),
    ("forget my dentist, my boss and my cat", words("dentist", "boss", "cat")),
    ("Let us forget about Lisbon, ok?", words("lisbon")),
    ("could you maybe forget my zebra?", words("zebra")),
    ("I think you should forget my zebra", words("zebra")),
    ("you could delete my address", words("address")),
    ("I would like it if you forgot my zebra", words("zebra")),
    ("以后别记得海豚了", words("海豚")),
]


@pytest.mark.parametrize(("text", "request_"), REQUESTS, ids=[text for text, _ in REQUESTS])
def test_a_request_is_read(text: str, request_: ForgetRequest) -> None:
    assert asks_to_forget(text)
    assert means_to_forget(text)
    assert read_request(text, TODAY) == request_


@pytest.mark.parametrize(
    "text",
    [
        "don't forget my dentist appointment",
        "Please do not forget that I moved to Porto",
        "Never forget that I moved to Porto",
        "I forgot my keys",
        "I always forget names",
        "We want to forget the war",
        "Forget-me-nots are my favourite flowers",
        "How do I make you forget something?",
        "What happens if you forget my dentist?",
        "Did you forget my dentist?",
        "forget to lock the door again and I scream",
        "No need to keep the receipt",
        "They say you can forget a language",
        "我不用记得密码",
        "如果忘掉过去就好了",
        "She told me to move on",
        'My boss said "forget everything about the merger"',
        "You can forget about winning, said my coach",
        "I don't want you to keep calling me",
        "It would be good if you removed your shoes",
        "I'd rather you didn't keep the receipt",
        "不用记得带伞",
        "He wrote “please delete this conversation”, what does he mean?",
        "> forget my dentist\nwhat do you think of this?",
        "```\ndelete everything\n```\nwhat does this do?",
        "The mail says: forget that meeting",
        "不要忘记我的牙医预约",
        "别忘了我搬到波尔图了",
        "千万别把这个对话删除",
        "我忘记带钥匙了",
        "怎么忘记一个人",
        "你忘记我的牙医了吗？",
        "没忘记你说的话",
        "他说“忘记这件事”",
        "我搬到波尔图了",
        "don't forget to buy milk",
        "My boss deleted my account",
        "I want to forget my ex",
        "I don't remember my dentist",
        "Don't remember where I left it",
        "我忘了带钥匙",
        "我把钥匙忘了",
        "我把文件删掉了",
        "别忘了买牛奶",
        "别删掉我的牙医",
        "别记得太晚",
        "我不记得密码了",
        "把牛奶忘在店里了",
    ],
)
def test_what_denies_tells_quotes_or_asks_about_it_is_no_request(text: str) -> None:
    assert not asks_to_forget(text)
    assert not means_to_forget(text)
    assert read_request(text, TODAY) is None


@pytest.mark.parametrize(
    "text",
    [
        "wipe everything about me except Porto",
        "forget everything I said in March 2024, but not the wedding",
        "delete all my data apart from my dentist",
        "把关于我的都忘掉，除了波尔图",
        "除了牙医以外，把我说过的全部删掉",
        "忘掉所有的事情，只保留生日",
        "forget everything but Melanie",
        "forget all of it but my name",
        "delete everyone but Ana",
        "把除了小红的都删了",
        "除了牙医，其他都忘掉",
        "除了牙医都忘掉",
        "除牙医外都忘掉",
        "只保留牙医，其他删掉",
        "其他的都忘掉",
        "keep my dentist, forget everything else",
        "forget the rest",
    ],
)
def test_what_is_to_be_kept_is_never_read_as_what_is_to_go(text: str) -> None:
    assert asks_to_forget(text)
    assert read_request(text, TODAY, is_alone=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "forget it",
        "Forget about it.",
        "Forget Paris is a good film",
        "delete the file on my desktop",
        "remove the stains from the sofa with vinegar",
        "Clear skies over Porto today",
        "forget my dentist and tell me a joke about him. Then sing.",
        "forget my dentist and tell me a joke",
        "请忘掉我的牙医，再告诉我时间",
        "forget my " + "very " * 100 + "long story",
        "忘记带伞",
        "忘了我的密码",
        "忘记我的密码了",
        "删除桌面上的文件",
    ],
)
def test_what_may_be_something_else_is_left_to_a_model(text: str) -> None:
    assert read_request(text, TODAY) is None


@pytest.mark.parametrize(
    "text",
    [
        "forget it",
        "please forget",
        "delete that, please",
        "please delete Melanie",
        "delete the file on my desktop",
        "remove my name from the draft",
        "erase me from your memory",
        "删掉",
        "把密码提示删掉",
        "帮我删掉密码提示",
        "把小红删了",
        "请忘记这件事",
        "不要记得这件事",
        "forget I",
        "forget the",
        "from tomorrow on forget my dolphin",
        "forget what I said on 04/12/2025",
        "forget what I said on 04.12.2025",
        "忘了它",
        "忘记她",
        "忘记小明",
        "忘记河马和香菜",
        "忘掉我04/12/2025说的话",
        "删掉4/12说的话",
        "忘记我昨天和今天说的话",
        "除了牙医，其他都忘掉",
        "除了牙医都忘掉",
        "除牙医外都忘掉",
        "只保留牙医，其他删掉",
        "其他的都忘掉",
        "keep my dentist, forget everything else",
        "forget the rest",
        "从明天起忘记海豚",
    ],
)
def test_a_request_of_an_unclear_object_states_nothing_all_the_same(text: str) -> None:
    assert means_to_forget(text)
    assert read_request(text, TODAY) is None


@pytest.mark.parametrize(
    "text",
    [
        "Forget Paris is a good film",
        "Remove the stains from the sofa with vinegar",
        "Clear skies over Porto today",
        "Clear my desk on Friday",
        "I moved to Porto. Please forget my old address.",
        "忘记带伞",
        "忘了我的密码",
        "忘记我的密码了",
        "把钥匙忘了",
        "把垃圾清除了",
        "我想忘记她",
        "我想忘掉过去",
        "Perhaps remove the rust with vinegar",
        "忘记昨天开会",
        "忘记雨伞在办公室",
        "忘记妈妈的生日",
        "忘记她说的话了",
        "要是你忘记带伞就好笑了",
        "忘记关灯",
        "忘记买牛奶和面包",
        "忘记昨天吃了什么",
        "forget Madrid and remember that I live in Lisbon",
        "forget my dentist and remember the new one",
        "please forget my address, I live in Porto now",
        "忘记马德里，记住我住在里斯本",
        "请忘掉我的牙医，我换了一个",
    ],
)
def test_what_may_state_something_is_not_taken_for_a_request_alone(text: str) -> None:
    assert not means_to_forget(text)
    assert read_request(text, TODAY) is None


@pytest.mark.parametrize("text", ["把" * 390, "把我" * 190, "从今起" * 130, "除都" * 190, "别把" * 50_000])
def test_many_beginnings_of_a_request_are_read_in_one_way_each(text: str) -> None:
    assert not asks_to_forget(text)
    assert not means_to_forget(text)
    assert asks_to_forget(f"{text[:30]}删了") or text.startswith(("从", "别"))


@pytest.mark.parametrize(
    "text",
    ["forget " + "all the " * 45 + "x", "delete " + "all the " * 45 + "x", "把我" + "全都" * 60 + "删掉x"],
)
def test_words_that_are_said_again_and_again_are_read_in_one_way_each(text: str) -> None:
    assert read_request(text, TODAY) is None


@pytest.mark.parametrize(
    ("text", "request_"),
    [
        ("I don't want you to keep that Paul is a pilot", words("paul", "pilot")),
        ("I'd rather you forgot what Paul said about Anna", words("paul", "anna")),
        ("Don't remember Anna's phone number", words("anna", "phone", "number")),
        ("我不想让你保留保罗是飞行员", words("保罗", "飞行员")),
        ("你最好忘了保罗说小红的话", words("保罗", "小红")),
        ("那四十块的事你可以忘了", words("四十块")),
        ("forget what I said about mushrooms, not the rest", words("mushrooms")),
        ("forget my dentist. Nothing else.", words("dentist")),
        ("把香菜的事忘了，别的不要动", words("香菜")),
        ("把香菜的事忘了。其他的都保留。", words("香菜")),
        ("forget that Linda is quitting, it's a secret", words("linda", "quitting")),
        ("忘记林悦要辞职，这是秘密", words("林悦要辞职")),
        ("请抹掉小军的生日", words("小军", "生日")),
    ],
)
def test_a_request_is_read_however_it_is_put(text: str, request_: ForgetRequest) -> None:
    assert means_to_forget(text)
    assert read_request(text, TODAY, is_alone=True) == request_


@pytest.mark.parametrize("text", ["忘记是", "忘记不", 'forget that Zoe said "don\'t delete my photos"'])
def test_a_request_of_next_to_nothing_or_with_a_quotation_is_no_statement(text: str) -> None:
    assert means_to_forget(text)


@pytest.mark.parametrize(
    "text",
    ["I don't want you to keep calling me", "别记错我的名字", "我妈说你可以忘了", "我妈生病了，这是秘密"],
)
def test_what_only_resembles_a_request_is_none(text: str) -> None:
    assert not means_to_forget(text)
