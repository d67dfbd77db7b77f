import pytest

from pikobot.memory.byte_scan import ScanReport
from pikobot.memory.receipts import Receipt
from pikobot.store.closure import Removed
from pikobot.store.erasures import Tombstone


def test_a_receipt_is_json_and_lines_in_english_and_chinese() -> None:
    rows = {"run_transcript": 0, "sources": 2, "media": 1, "threads": 1}
    receipt = Receipt(
        removed=Removed((Tombstone("source", "src_1"), Tombstone("thread", "thr_1")), rows, 1, 2),
        is_wal_truncated=True,
        is_rewritten=False,
        ledger_position=9,
        scan=ScanReport(3, 4096, 7, 1, False),
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
            "bytes": 4096,
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
        "  2  sources with their index rows",
        "  1  attachment",
        "  1  thread",
        "Answers under way: 1 cancelled, 2 begin again",
        "Checked: 3 files (4096 bytes) searched for 7 fragments, 0 found; 1 text too short to look for",
    ]
    assert receipt.render_lines("zh") == [
        "已忘记：",
        "  2  来源（连同索引）",
        "  1  附件",
        "  1  话题",
        "正在进行的回答：1 个已取消，2 个将重新开始",
        "检查：在 3 个文件（4096 字节）中查找 7 个片段，发现 0 个；1 段文字太短，无法查找",
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
    one = [
        "  1  source with its index rows",
        "  1  name of people and things",
        "  1  vector",
        "  1  link between sources",
        "  1  message of tool transcripts",
        "  1  empty run",
    ]
    many = [
        "  2  sources with their index rows",
        "  2  names of people and things",
        "  2  vectors",
        "  2  links between sources",
        "  2  messages of tool transcripts",
        "  2  empty runs",
    ]
    assert receipt.render_lines()[1:7] == (one if count == 1 else many)
