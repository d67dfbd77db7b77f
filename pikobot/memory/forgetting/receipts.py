"""The receipt of an erasure: counts and places, never a word of what was erased."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Literal

from pikobot.memory.forgetting.byte_scan import ScanReport
from pikobot.store.erasing.closure import Removed
from pikobot.store.erasing.targets import Labels
from pikobot.text import Count

Language = Literal["en", "zh"]

MAX_LABELS_SHOWN = 3

# How each kind of what is kept is counted, the same before an erasure and after it.
_COUNTED = {
    "sources": ("message", "消息 {} 条"),
    "facts": ("fact", "事实 {} 条"),
    "threads": ("conversation", "话题 {} 个"),
    "media": ("attachment", "附件 {} 个"),
    "fact_tags": ("tag", "标签 {} 个"),
    "entities": ("name of people or things|names of people or things", "人和事物的名称 {} 个"),
}
_INTERNAL = ("vectors", "source_dependencies", "run_sources", "run_transcript", "runs")
_INTERNAL_NOUNS = (
    "internal entry that belonged to them|internal entries that belonged to them",
    "与之相关的内部条目 {} 条",
)


@dataclass(frozen=True)
class AlreadyErased:
    """There was nothing left to erase: an expected outcome."""

    ids: int
    is_clean: Literal[True] = True

    def as_json(self) -> dict[str, object]:
        return {"status": "alreadyErased", "ids": self.ids}

    def render_lines(self, language: Language = "en") -> list[str]:
        return ["已经忘记过了。" if language == "zh" else "Already forgotten."]


@dataclass(frozen=True)
class Changed:
    """What would go is not what was shown any more, so nothing was erased: an expected outcome."""


@dataclass(frozen=True, kw_only=True)
class Receipt:
    """What went from where, and the proof. ``labels`` are names that hold the text that was asked for, and stay.

    ``problem``: why traces of what is erased could not be removed from the files, or looked for, after the commit.
    """

    removed: Removed
    is_wal_truncated: bool
    is_rewritten: bool
    ledger_position: int
    scan: ScanReport
    labels: Labels | None = None
    problem: str | None = None

    @property
    def is_clean(self) -> bool:
        """Whether nothing is left, as far as it could be looked for."""
        is_proved = self.is_wal_truncated and self.problem is None
        return is_proved and not self.scan.finds and not self.scan.unreadable

    @property
    def erased_ids(self) -> int:
        return len(self.removed.tombstones)

    def as_json(self) -> dict[str, object]:
        receipt: dict[str, object] = {
            "status": "erased",
            "erasedIds": self.erased_ids,
            "removed": {table: count for table, count in self.removed.rows.items() if count},
            "runs": {"cancelled": self.removed.runs_cancelled, "requeued": self.removed.runs_requeued},
            "walTruncated": self.is_wal_truncated,
            "rewritten": self.is_rewritten,
            "ledgerPosition": self.ledger_position,
            "scan": self.scan.as_json(),
            "clean": self.is_clean,
        }
        if self.problem is not None:
            receipt["problem"] = self.problem
        return receipt if self.labels is None else receipt | {"names": labels_as_json(self.labels)}

    def render_lines(self, language: Language = "en") -> list[str]:
        """What went, in the words of the preview, and a few lines for people, without line ends."""
        chinese = language == "zh"
        removed = self.removed.rows
        counts = [
            _counted(count, nouns, chinese)
            for table, nouns in _COUNTED.items()
            if (count := removed.get(table))
        ]
        if internal := sum(removed.get(table, 0) for table in _INTERNAL):
            counts.append(_counted(internal, _INTERNAL_NOUNS, chinese))
        width = 0 if chinese else max((line.index(" ") for line in counts), default=0)
        lines = [self._heading(chinese), *("  " + " " * (width - line.find(" ")) + line for line in counts)]
        lines += [] if self.labels is None else label_lines(self.labels, language)
        lines += self._runs_line(chinese)
        if self.problem is not None:
            return [*lines, self._unfinished_line(chinese)]
        lines.append(self._scan_line(chinese))
        lines += self._problems(chinese)
        return lines

    def _unfinished_line(self, chinese: bool) -> str:
        if chinese:
            return f"文件中的痕迹尚未清除：{self.problem}。下次启动 pikobot 时会完成"
        return f"Traces are still in the files: {self.problem}. The next start of pikobot removes them"

    def _heading(self, chinese: bool) -> str:
        if self.is_clean:
            return "已忘记：" if chinese else "Forgotten:"
        return (
            "已从记忆中删除，但尚不能证明已全部消失（见下文）："
            if chinese
            else "Erased from memory, but not proved to be gone from every file (see below):"
        )

    def _runs_line(self, chinese: bool) -> list[str]:
        cancelled, requeued = self.removed.runs_cancelled, self.removed.runs_requeued
        if not cancelled and not requeued:
            return []
        if chinese:
            return [f"正在进行的回答：{cancelled} 个已取消，{requeued} 个将重新开始"]
        return [f"Answers under way: {cancelled} cancelled, {requeued} begin again"]

    def _scan_line(self, chinese: bool) -> str:
        scan = self.scan
        found = sum(find.fragments for find in scan.finds)
        megabytes = f"{scan.bytes / 1_000_000:.1f} MB"
        if chinese:
            line = f"检查：在 {scan.files} 个文件（{megabytes}）中查找 {scan.fragments} 小段被删的文字，"
            line += f"找到 {found} 段" if found else "都没有找到"
            return line + (f"；另有 {scan.too_short} 段文字太短，无法查找" if scan.too_short else "")
        line = f"Checked: {Count(scan.files):file} ({megabytes}) searched for {Count(scan.fragments):piece} of the "
        line += f"erased text, {found or 'none'} found"
        return line + (f"; {Count(scan.too_short):text} too short to look for" if scan.too_short else "")

    def _problems(self, chinese: bool) -> list[str]:
        lines = []
        if not self.is_wal_truncated:
            lines.append(
                "数据库日志正在被读取，尚未清空：重启 pikobot 时会完成"
                if chinese
                else "A reader keeps the database's log: it is emptied at the next start of pikobot"
            )
        if self.scan.is_cut:
            lines.append(
                "内容很长，只查找了一部分" if chinese else "Of very long contents only a part was looked for"
            )
        for find in self.scan.finds:
            if find.is_in_index:
                lines.append(
                    f"{find.file} 中仍可能有 {find.fragments} 行：运行 `pikobot reindex`"
                    if chinese
                    else f"{find.file} may still hold {Count(find.fragments):row} of it: run `pikobot reindex`"
                )
                continue
            pieces = f"{Count(find.fragments):piece of it: remove it|pieces of it: remove them}"
            lines.append(
                f"{find.file} 中仍有 {find.fragments} 小段：请删除或修改该文件"
                if chinese
                else f"{find.file} still holds {pieces} there"
            )
        return lines + [
            f"无法检查：{problem}" if chinese else f"Not checked: {problem}"
            for problem in self.scan.unreadable
        ]


def counted(table: str, count: int, language: Language) -> str:
    """So many of a kind of what is kept: ``3 messages``, ``消息 3 条``."""
    return _counted(count, _COUNTED[table], language == "zh")


def _counted(count: int, nouns: tuple[str, str], chinese: bool) -> str:
    return nouns[1].format(count) if chinese else f"{Count(count):{nouns[0]}}"


def tells_of_traces(result: Mapping[str, object]) -> bool:
    """Whether what an RPC method gave has a receipt by which something is left, or not all was looked through."""
    receipt = result.get("receipt", result)
    return isinstance(receipt, dict) and receipt.get("clean") is False


def labels_as_json(labels: Labels) -> dict[str, object]:
    return {
        "threads": {
            "total": labels.thread_count,
            "items": [{"id": public_id, "name": name} for public_id, name in labels.threads],
        },
        "externalIds": {
            "total": labels.external_id_count,
            "items": [{"id": public_id, "externalId": name} for public_id, name in labels.external_ids],
        },
    }


def label_lines(labels: Labels, language: Language) -> list[str]:
    """That names stay which hold what was asked for, and how each of them can be removed."""
    chinese = language == "zh"
    threads, ids = (
        _listed([f"“{name}” ({command} {public_id})" for public_id, name in known[:MAX_LABELS_SHOWN]], total)
        for known, total, command in (
            (labels.threads, labels.thread_count, "/忘记" if chinese else "/forget"),
            (labels.external_ids, labels.external_id_count, "/忘记" if chinese else "/forget"),
        )
    )
    lines = []
    if labels.thread_count:
        lines.append(
            f"话题名称中仍有该文字，删除话题才会消失：{threads}"
            if chinese
            else f"The name of a conversation keeps it until the conversation is forgotten: {threads}"
        )
    if labels.external_id_count:
        lines.append(
            f"外部编号中仍有该文字，删除那条消息才会消失：{ids}"
            if chinese
            else f"An id from outside keeps it until its message is forgotten: {ids}"
        )
    return lines


def _listed(names: list[str], total: int) -> str:
    more = total - len(names)
    return ", ".join(names) + (f" … +{more}" if more else "")
