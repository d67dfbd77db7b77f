"""Everyday words for the same thing, in English and Chinese: who asks for a pet may have told of a cat.

Used in recall mode alone, where nothing has the words of a question, and what is found so is said to be a guess.
"""

import re
from typing import NamedTuple

from pikobot.memory.language.periods import MAX_CHARS_READ
from pikobot.memory.language.questions import keywords
from pikobot.store.text.segmentation import fold, is_cjk

# A question with more words than so many beside the everyday one is about something more particular.
MOST_OTHER_WORDS = 1

# What may be asked for; behind the bar what only an answer says.
_GROUPS = """
work, works, working, job, profession, occupation, employer, 工作, 上班, 职业, 公司, 单位 | employed, company, \
    office, engineer, teacher, nurse, developer, designer, accountant, lawyer, manager, 任职, 就职, 经理, \
    工程师, 老师, 护士, 设计师, 程序员, 会计, 律师
pet, pets, 宠物 | cat, dog, kitten, puppy, rabbit, hamster, parrot, 猫, 狗, 兔子, 仓鼠, 鹦鹉
child, children, kid, kids, 孩子, 小孩, 娃, 子女 | son, daughter, baby, toddler, 儿子, 女儿, 宝宝
how heavy, how much do i weigh, weight, weigh, heavy, 体重, 多重 | kilos, kilograms, kg, pounds, 公斤, 斤, 千克
how tall, height, tall, 身高, 多高 | cm, 厘米, 公分
how old, age, 年龄, 多大, 几岁 | born, birthday, 出生, 生日, 岁
birthday, born, 生日, 出生, 哪天生 | 生于
name, called, 名字, 姓名 | call me, 我叫, 我姓
boss, supervisor, 老板, 上司, 领导, 主管 | manager, 经理
married, marry, wife, husband, spouse, partner, 结婚, 已婚, 老婆, 妻子, 太太, 爱人, 老公, 丈夫
live, home, address, 住, 地址, 家 | moved, flat, apartment, house, 搬, 公寓, 租
phone, number, telephone, mobile, 电话, 手机, 号码
doctor, physician, 医生, 大夫
dentist, 牙医 | tooth, teeth, 牙
holiday, vacation, trip, travel, 旅行, 旅游, 度假, 出游 | flight, 机票
car, vehicle, 汽车, 车
mother, mum, mom, 妈妈, 母亲
father, dad, 爸爸, 父亲
siblings, sibling, 兄弟姐妹 | brother, sister, 哥哥, 弟弟, 姐姐, 妹妹
parents, 父母, 爸妈 | mother, father, mum, mom, dad, 妈妈, 爸爸, 母亲, 父亲
allergy, allergies, allergic, can't i eat, 过敏, 不能吃 | can't eat, cannot eat
搬来, 搬到, 搬去, 搬家 | 搬, moved
diet, 饮食, 忌口 | vegetarian, vegan, 吃素
salary, wage, earn, income, 工资, 薪水, 收入
hobby, hobbies, 爱好, 兴趣 | like, love, enjoy, 喜欢
school, university, college, study, 学校, 大学, 专业 | degree, graduated, 毕业
appointment, meeting, 预约, 约会, 会议 | 约在, 开会
plumber, 水管工, 管道工, 修水管, 水电工
ill, sick, illness, 生病 | flu, cold, fever, 感冒, 发烧
film, movie, 电影
hometown, 老家, 家乡 | born, grew, 出生, 长大, 来自
"""


class _Group(NamedTuple):
    asked: re.Pattern[str]
    words: tuple[str, ...]


def _read(line: str) -> _Group:
    asked, _, told = (part.strip() for part in line.partition("|"))
    questions = [word.strip() for word in asked.split(",")]
    answers = [word.strip() for word in told.split(",") if word.strip()]
    pattern = "|".join(word if is_cjk(word) else f"\\b{word}\\b" for word in questions)
    words = [word for word in [*questions, *answers] if not word.startswith(("how ", "can't i "))]
    return _Group(re.compile(pattern), tuple(words))


_EVERYDAY = [_read(line) for line in _GROUPS.strip().splitlines()]


def other_words(question: str) -> list[str]:
    """What statements may say instead of an everyday word of the question; nothing where it asks for more than that."""
    folded = fold(question[:MAX_CHARS_READ])
    groups = [group for group in _EVERYDAY if group.asked.search(folded)]
    if not groups:
        return []
    rest = folded
    for group in groups:
        rest = group.asked.sub(" ", rest)
    if len([word for word in keywords(rest) if len(word) > 1]) > MOST_OTHER_WORDS:
        return []
    return list(dict.fromkeys(word for group in groups for word in group.words))
