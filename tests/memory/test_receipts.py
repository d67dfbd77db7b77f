import pytest

from pikobot.memory.forgetting.byte_scan import ScanReport
from pikobot.memory.forgetting.receipts import Receipt
from pikobot.store.erasing.closure import Removed
from pikobot.store.erasing.erasures import Tombstone


def test_a_receipt_is_json_and_lines_in_english_and_chinese() -> None:
    rows = {"run_transcript": 0, "sources": 2, "media": 1, "threads": 1}
    receipt = Receipt(
        removed=Removed((Tombstone("source", "src_1"), Tombstone("thread", "thr_1")), rows, 1, 2),
        is_wal_truncated=True,
        is_rewritten=False,
        ledger_position=9,
        scan=ScanReport(3, 2_100_000, 7, 1, False),
    )
    assert receipt.as_json() == {
        "status": "erased",
        "erasedIds": 2,
        "removed": {"sources": 2, "media": 1, "threads": 1},
        "runs": {"cancelled": 1, "requeued": 2},
        "walTruncated": True,
        "rewritten": False,
        "ledgerPosition": 9,
        "scan": {
            "files": 3,
            "bytes": 2_100_000,
            "fragments": 7,
            "tooShort": 1,
            "partial": False,
            "finds": [],
            "unreadable": [],
        },
        "clean": True,
    }
    assert receipt.render_lines() == [
        "Forgotten:",
        "  2 messages",
        "  1 conversation",
        "  1 attachment",
        "Answers under way: 1 cancelled, 2 begin again",
        "Checked: 3 files (2.1 MB) searched for 7 pieces of the erased text, none found; 1 text too short to look for",
    ]
    assert receipt.render_lines("zh") == [
        "已忘记：",
        "  消息 2 条",
        "  话题 1 个",
        "  附件 1 个",
        "正在进行的回答：1 个已取消，2 个将重新开始",
        "检查：在 3 个文件（2.1 MB）中查找 7 小段被删的文字，都没有找到；另有 1 段文字太短，无法查找",
    ]


@pytest.mark.parametrize("count", [1, 2])
def test_what_went_agrees_with_its_number(count: int) -> None:
    tables = ("sources", "vectors", "source_dependencies", "entities", "run_transcript", "runs")
    receipt = Receipt(
        removed=Removed((), dict.fromkeys(tables, count)),
        is_wal_truncated=True,
        is_rewritten=False,
        ledger_position=1,
        scan=ScanReport(1, 1, 1, 0, False),
    )
    one = ["  1 message", "  1 name of people or things", "  4 internal entries that belonged to them"]
    many = ["  2 messages", "  2 names of people or things", "  8 internal entries that belonged to them"]
    assert receipt.render_lines()[1:4] == (one if count == 1 else many)
    assert receipt.render_lines("zh")[1:4] == [
        f"  消息 {count} 条",
        f"  人和事物的名称 {count} 个",
        f"  与之相关的内部条目 {4 * count} 条",
    ]
