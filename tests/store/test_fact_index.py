from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from pikobot.store.connection import Connection, Database
from pikobot.store.fact_index import (
    FactFilters,
    check_fact_index,
    count_facts,
    count_tags,
    list_facts,
    rebuild_fact_index,
    search_facts,
)
from pikobot.store.facts import FactId, delete_facts, supersede_facts
from pikobot.store.text.segmentation import fold
from tests.clock import DAY_MS, NOW_MS
from tests.store import rows
from tests.store.rows import GROUP
from tests.store.stating import found, state


def said(db: Database, text: str, **changes: Any) -> FactId:
    of = changes.pop("of", None)
    at_ms = changes.pop("at_ms", NOW_MS)
    source = rows.source(db, rows.thread(db, of=of), text, said_at_ms=at_ms)
    return state(db, text, source, **changes).fact_id


def listed(
    db: Database, *, before: tuple[int, int] | None = None, limit: int = 50, **filters: Any
) -> list[int]:
    made = FactFilters(**({"scope_ids": None, "now_ms": NOW_MS} | filters))
    return [row[1] for row in rows.read(db, list_facts, filters=made, before=before, limit=limit)]


@pytest.mark.parametrize(
    "query", ["youer", "YOUER", "服务", "服务端", "端", "改", "修改youer服务端", "servers"]
)
def test_a_fact_is_found_by_each_part_of_a_mixed_run(db: Database, query: str) -> None:
    said(db, "Nothing of the kind", subject="Ana")
    wanted = said(db, "请修改youer服务端 server")
    assert found(db, query) == [wanted]


@pytest.mark.parametrize("query", ["Ana", "安娜", "home city", "波尔图", "PORTO"])
def test_a_fact_is_found_by_its_names(db: Database, query: str) -> None:
    wanted = said(
        db,
        "lives abroad",
        subject="Ana",
        entities=("安娜",),
        attribute="home_city",
        value="波尔图 Porto",
    )
    said(db, "swims")
    assert found(db, query) == [wanted]


@pytest.mark.parametrize("query", ["lose", "lost", "wallet 茶"])
def test_a_fact_is_found_by_other_forms_and_lone_characters(db: Database, query: str) -> None:
    wanted = said(db, "The owner lost the 茶 box")
    said(db, "swims")
    assert found(db, query) == [wanted]


@pytest.mark.parametrize("query", ["", "  ", '"', "AND", "*", "。", "text:", "-"])
def test_a_query_is_never_an_expression(db: Database, query: str) -> None:
    said(db, "swims")
    assert found(db, query) == []


def test_all_tags_must_be_those_of_one_fact(db: Database) -> None:
    both = said(db, "tea with milk", tags=("drink", "food"))
    said(db, "tea alone", tags=("drink",))
    said(db, "tea cake", tags=("food",))
    assert found(db, "tea", tags=("drink", "food")) == [both]
    assert listed(db, tags=("drink", "food")) == [both]


def test_kind_basis_scope_and_history_are_filters(db: Database) -> None:
    plan = said(db, "tea tomorrow", kind="plan")
    stated = said(db, "tea always", basis="explicit")
    shared = said(db, "tea for all", of=GROUP, subject="Ana")
    old = said(db, "tea never")
    rows.write(db, supersede_facts, [old], stated)
    assert found(db, "tea", kind="plan") == [plan]
    assert found(db, "tea", basis="explicit") == [stated]
    assert found(db, "tea", scope_ids=[rows.scope(db, GROUP)]) == [shared]
    assert found(db, "tea", scope_ids=[]) == []
    assert sorted(found(db, "tea")) == [plan, stated, shared]
    assert sorted(found(db, "tea", history=True)) == [plan, stated, shared, old]
    assert sorted(listed(db, history=True)) == [plan, stated, shared, old]


@pytest.mark.parametrize(
    ("first", "second", "name"),
    [("Ana", "Annie", "annie"), ("安娜", "娜娜", "娜娜"), ("Ana", "Annie", "ANA"), ("Ａｎａ", "安娜", "ana")],
)
def test_an_alias_means_its_entity_until_what_taught_it_goes(
    db: Database, first: str, second: str, name: str
) -> None:
    by_name = said(db, f"{first} swims", subject=first)
    by_alias = said(db, f"{second} sings", entities=(second,))
    stranger = said(db, "Bob sings", subject="Bob")
    taught = said(db, f"{first} is called {second}", subject=first, attribute="nickname", value=second)
    assert sorted(listed(db, entity=fold(name))) == [by_name, by_alias, taught]
    assert stranger not in listed(db, entity=fold(name))

    def forget(tx: Connection) -> None:
        delete_facts(tx, [taught])

    rows.write(db, forget)
    assert len(listed(db, entity=fold(name))) == 1


def test_a_name_in_another_scope_is_another_entity(db: Database) -> None:
    own = said(db, "Ana swims", subject="Ana")
    shared = said(db, "Ana sings", subject="Ana", of=GROUP)
    assert listed(db, entity="ana", scope_ids=[rows.scope(db)]) == [own]
    assert sorted(listed(db, entity="ana")) == [own, shared]


def test_a_range_is_that_of_the_event_else_of_what_was_said(db: Database) -> None:
    day = said(db, "party a", event_time="2024-02-10")
    moment = said(db, "party b", event_time="2024-02-10T23:30:00+08:00")
    naive = said(db, "party c", event_time="2024-02-10T23:30:00")
    plain = said(db, "party d", at_ms=NOW_MS - 10 * DAY_MS)
    first_ms = 1_707_523_200_000  # 2024-02-10T00:00:00Z
    of_day = {
        "from_ms": first_ms,
        "to_ms": first_ms + DAY_MS,
        "from_day": "2024-02-10",
        "to_day": "2024-02-10",
    }
    assert sorted(found(db, "party", **of_day)) == [day, moment, naive]
    later = {"from_ms": first_ms + DAY_MS, "from_day": "2024-02-11"}
    assert found(db, "party", **later) == [plain]
    assert sorted(found(db, "party", to_ms=first_ms, to_day="2024-02-09")) == []


def test_explicit_facts_outrank_inferred_ones_about_the_same(db: Database) -> None:
    inferred = said(db, "Porto Porto Porto", attribute="home_city", value="Porto")
    other = said(db, "Porto is a port and a city in Portugal", subject="Porto")
    explicit = said(
        db,
        "home is Lisbon and not the city of Porto",
        attribute="home_city",
        value="Lisbon",
        basis="explicit",
    )
    ranked = found(db, "Porto")
    assert ranked.index(explicit) < ranked.index(inferred)
    assert set(ranked) == {explicit, inferred, other}


def test_a_statement_is_listed_once_and_the_explicit_one_speaks_for_all(db: Database) -> None:
    first = said(db, "lives in Porto", attribute="home_city", value="Porto", at_ms=NOW_MS - DAY_MS)
    explicit = said(db, "Porto is home", attribute="home_city", value="porto", basis="explicit")
    said(db, "is at home in Porto", attribute="home_city", value="Porto")
    assert listed(db) == [explicit]
    assert listed(db, basis="inferred") == [first]
    assert rows.read(db, count_facts, now_ms=NOW_MS) == 1


def test_pages_of_a_list_are_parts_of_it_newest_first(db: Database) -> None:
    ids = [said(db, f"note {n}", at_ms=NOW_MS + n % 3) for n in range(7)]
    expected = sorted(ids, key=lambda each: ((each - ids[0]) % 3, each), reverse=True)
    assert listed(db) == expected
    made = FactFilters(scope_ids=None, now_ms=NOW_MS)
    page = rows.read(db, list_facts, filters=made, before=None, limit=3)
    assert [row[1] for row in page] == expected[:3]
    assert listed(db, before=page[-1]) == expected[3:]


def test_tags_are_counted_by_statement(db: Database) -> None:
    said(db, "lives in Porto", attribute="home_city", value="Porto", tags=("home", "city"))
    said(db, "at home in Porto", attribute="home_city", value="Porto", tags=("home",))
    old = said(db, "lives in Lisbon", attribute="home_city", value="Lisbon", tags=("home", "old"))
    rows.write(db, supersede_facts, [old], FactId(1))
    said(db, "swims", tags=("sport", "home"))
    counted = rows.read(db, count_tags, filters=FactFilters(scope_ids=None, now_ms=NOW_MS), limit=9)
    assert counted == [("home", 2), ("city", 1), ("sport", 1)]


def test_the_index_is_made_again_and_checked(db: Database) -> None:
    wanted = said(db, "住在波尔图", entities=("Porto",))
    rows.execute(db, "INSERT INTO facts_text (facts_text) VALUES ('delete-all')")
    assert rows.write(db, check_fact_index) == ["1 fact is missing in the text index; run `pikobot reindex`"]
    assert [rows.write(db, rebuild_fact_index) for _ in range(2)] == [1, 1]
    assert rows.write(db, check_fact_index) == []
    assert found(db, "Porto") == [wanted]
    rows.execute(db, "DELETE FROM fact_evidence")
    assert rows.write(db, check_fact_index) == ["1 fact has no evidence; restore a backup (RECOVERY.md)"]


def test_what_is_not_eligible_hides_nothing_however_common_the_word(db: Database) -> None:
    for n in range(260):
        said(db, "tea", of=GROUP, subject=f"guest {n}")
    wanted = said(db, "tea and a longer text, which ranks last of all that have the word")
    made = FactFilters(scope_ids=[rows.scope(db)], now_ms=NOW_MS)
    hits = rows.read(db, search_facts, query="tea", filters=made, limit=5)
    assert [hit.fact_id for hit in hits] == [wanted]


def test_no_search_scans_the_facts_of_others(db: Database) -> None:
    with db.read() as conn:
        plan = conn.execute(
            "EXPLAIN QUERY PLAN SELECT id FROM facts WHERE scope_id = 1 AND identity = zeroblob(32)"
        ).fetchall()
        preferences = conn.execute(
            """
            EXPLAIN QUERY PLAN SELECT id FROM facts
            WHERE scope_id = 1 AND kind = 'preference' AND basis = 'explicit' AND subject = 'owner'
            """
        ).fetchall()
    assert "facts_by_identity" in str(plan)
    assert "facts_of_preference" in str(preferences)


WORDS = (
    "tea",
    "milk",
    "绿茶",
    "牛奶",
    "port",
)  # of CJK words no lone character: beside others it tells nothing


@settings(max_examples=25, suppress_health_check=[HealthCheck.function_scoped_fixture], deadline=None)
@given(
    facts=st.lists(
        st.tuples(
            st.lists(st.sampled_from(WORDS), min_size=1, max_size=3),
            st.sets(st.sampled_from(["a", "b"])),
            st.sampled_from(["fact", "plan"]),
            st.sampled_from(["Ana", "安娜", None]),
        ),
        min_size=1,
        max_size=6,
    ),
    query=st.lists(st.sampled_from(WORDS), min_size=1, max_size=2),
    tags=st.sets(st.sampled_from(["a", "b"])),
    kind=st.sampled_from(["plan", None]),
    entity=st.sampled_from(["Ana", "安娜", None]),
)
def test_search_finds_what_a_naive_scan_finds(
    db: Database,
    facts: list[tuple[list[str], set[str], str, str | None]],
    query: list[str],
    tags: set[str],
    kind: str | None,
    entity: str | None,
) -> None:
    rows.write(db, _forget_all)
    wanted = set()
    for number, (words, own_tags, own_kind, name) in enumerate(facts):
        names = () if name is None else (name,)
        fact_id = said(db, f"{' '.join(words)} {number}", tags=own_tags, kind=own_kind, entities=names)
        is_wanted = set(words) & set(query) and tags <= own_tags and kind in (None, own_kind)
        if is_wanted and entity in (None, name):
            wanted.add(fact_id)
    folded = None if entity is None else fold(entity)
    assert set(found(db, " ".join(query), tags=tuple(tags), kind=kind, entity=folded)) == wanted


def _forget_all(tx: Connection) -> None:
    delete_facts(tx, [FactId(row[0]) for row in tx.execute("SELECT id FROM facts")])
