"""What forgetting does to each column of each table.

A test walks the schema and fails for a column without a rule, so that a new table which holds text or points at
a source can't be overlooked. `closure` carries the rules out.
"""

from enum import StrEnum


class Rule(StrEnum):
    """What forgetting does with a column."""

    KEY = "integer key, means nothing outside, goes with its row"
    NAMED = "public id; the tombstone names it"
    IDENTITY = "recognises the record; the tombstone keeps it"
    CONTENT = "what was said or made of it; removed with its row, looked for afterwards"
    PLAIN = "says nothing of the content; goes with its row"
    FOLLOWS = "reference; the row goes when the row that it points at goes"
    LEASE = "cleared, so that whoever holds the row can't commit"
    CUT = "reference; set to NULL when the row that it points at goes"
    EMPTIED = "packed from many rows; the place of each is overwritten with zeros when the row goes"
    KEPT = "stays: no content, not about one source"


RULES: dict[str, dict[str, Rule]] = {
    "migrations": dict.fromkeys(("version", "name", "checksum", "applied_at_ms"), Rule.KEPT),
    "settings": dict.fromkeys(("key", "value"), Rule.KEPT),
    "scopes": dict.fromkeys(("id", "kind", "workspace", "bot", "chat", "user_or_topic"), Rule.KEPT),
    "threads": {
        "id": Rule.KEY,
        "public_id": Rule.NAMED,
        "scope_id": Rule.PLAIN,
        "key": Rule.CONTENT,
        "created_at_ms": Rule.PLAIN,
    },
    "sources": {
        "id": Rule.KEY,
        "public_id": Rule.NAMED,
        "kind": Rule.PLAIN,
        "role": Rule.PLAIN,
        "speaker": Rule.CONTENT,
        "scope_id": Rule.PLAIN,
        "thread_id": Rule.FOLLOWS,
        "run_id": Rule.FOLLOWS,
        "external_id": Rule.PLAIN,
        "identity": Rule.IDENTITY,
        "text": Rule.CONTENT,
        "content_hash": Rule.PLAIN,
        "origin": Rule.PLAIN,
        "is_partial": Rule.PLAIN,
        "said_at_ms": Rule.PLAIN,
        "utc_offset_min": Rule.PLAIN,
        "created_at_ms": Rule.PLAIN,
        "expires_at_ms": Rule.PLAIN,
    },
    "sources_text": {"text": Rule.CONTENT, "speaker": Rule.CONTENT},
    "source_dependencies": {"source_id": Rule.FOLLOWS, "depends_on_id": Rule.FOLLOWS},
    "media": {
        "id": Rule.KEY,
        "public_id": Rule.PLAIN,
        "source_id": Rule.FOLLOWS,
        "media_type": Rule.PLAIN,
        "name": Rule.CONTENT,
        "sha256": Rule.PLAIN,
        "data": Rule.CONTENT,
    },
    "runs": {
        "id": Rule.KEY,
        "public_id": Rule.PLAIN,
        "thread_id": Rule.FOLLOWS,
        "is_standalone": Rule.PLAIN,
        "model": Rule.PLAIN,
        "created_at_ms": Rule.PLAIN,
        "state": Rule.LEASE,
        "not_before_ms": Rule.LEASE,
        "lease_token": Rule.LEASE,
        "lease_expires_at_ms": Rule.LEASE,
        "claims": Rule.LEASE,
        "error_code": Rule.LEASE,
        "finished_at_ms": Rule.LEASE,
    },
    "run_transcript": {"run_id": Rule.FOLLOWS, "position": Rule.KEY, "message": Rule.CONTENT},
    "run_sources": {"run_id": Rule.FOLLOWS, "source_id": Rule.FOLLOWS},
    "attempts": {
        "id": Rule.KEPT,
        "run_id": Rule.CUT,
        "job_id": Rule.CUT,
        **dict.fromkeys(
            (
                "workspace",
                "purpose",
                "model",
                "state",
                "reserved_microusd",
                "cost_microusd",
                "input_tokens",
                "cached_input_tokens",
                "output_tokens",
                "error_code",
                "started_at_ms",
                "finished_at_ms",
            ),
            Rule.KEPT,
        ),
    },
    "facts": {
        "id": Rule.KEY,
        "public_id": Rule.PLAIN,
        "scope_id": Rule.PLAIN,
        "text": Rule.CONTENT,
        "subject": Rule.CONTENT,
        "attribute": Rule.CONTENT,
        "value": Rule.CONTENT,
        "kind": Rule.PLAIN,
        "basis": Rule.PLAIN,
        "identity": Rule.PLAIN,
        "event_time": Rule.PLAIN,
        "valid_until": Rule.PLAIN,
        "superseded_by_id": Rule.CUT,
        "created_at_ms": Rule.PLAIN,
    },
    "facts_text": {"text": Rule.CONTENT, "names": Rule.CONTENT},
    "fact_evidence": {
        "fact_id": Rule.FOLLOWS,
        "source_id": Rule.FOLLOWS,
        "first_byte": Rule.PLAIN,
        "after_byte": Rule.PLAIN,
        "content_hash": Rule.PLAIN,
    },
    "fact_context": {"fact_id": Rule.FOLLOWS, "source_id": Rule.FOLLOWS},
    "fact_tags": {"fact_id": Rule.FOLLOWS, "tag": Rule.CONTENT},
    "entities": {
        "id": Rule.KEY,
        "scope_id": Rule.PLAIN,
        "name": Rule.CONTENT,
        "folded": Rule.CONTENT,
    },
    "entity_aliases": {"entity_id": Rule.FOLLOWS, "folded": Rule.CONTENT, "fact_id": Rule.FOLLOWS},
    "fact_entities": {"fact_id": Rule.FOLLOWS, "entity_id": Rule.FOLLOWS},
    "run_facts": {"run_id": Rule.FOLLOWS, "fact_id": Rule.FOLLOWS, "is_given": Rule.PLAIN},
    "extraction_jobs": {
        "id": Rule.KEY,
        "public_id": Rule.PLAIN,
        "scope_id": Rule.PLAIN,
        "thread_id": Rule.FOLLOWS,
        "run_id": Rule.CUT,
        "created_at_ms": Rule.PLAIN,
        "outcome": Rule.PLAIN,
        "stored_facts": Rule.PLAIN,
        **dict.fromkeys(
            (
                "state",
                "not_before_ms",
                "lease_token",
                "lease_expires_at_ms",
                "claims",
                "error_code",
                "finished_at_ms",
            ),
            Rule.LEASE,
        ),
    },
    "extraction_job_sources": {"job_id": Rule.FOLLOWS, "source_id": Rule.FOLLOWS},
    "extraction_rejections": {"job_id": Rule.FOLLOWS, "reason": Rule.PLAIN, "count": Rule.PLAIN},
    "vectors": {
        "owner_id": Rule.FOLLOWS,
        **dict.fromkeys(("id", "block_id", "slot"), Rule.KEY),
        **dict.fromkeys(("set_id", "owner_kind", "scope_id", "at_ms"), Rule.PLAIN),
    },
    "vector_values": {"vector_id": Rule.FOLLOWS, "unit": Rule.CONTENT},
    "vector_block_data": {"block_id": Rule.KEPT, "data": Rule.EMPTIED},
    "vector_blocks": dict.fromkeys(
        ("id", "set_id", "owner_kind", "scope_id", "mean_id", "capacity", "used", "live", "revision"),
        Rule.KEPT,
    ),
    # A mean is made of hundreds of vectors, which can't be told from it; reindexing makes it again.
    "vector_means": dict.fromkeys(("id", "set_id", "vectors", "mean"), Rule.KEPT),
    "vector_sets": dict.fromkeys(
        ("id", "state", "provider", "model", "dimension", "prefix_rule", "created_at_ms"), Rule.KEPT
    ),
    "embedding_marks": dict.fromkeys(("set_id", "owner_kind", "up_to_id"), Rule.KEPT),
    "embedding_jobs": {
        **dict.fromkeys(("id", "set_id", "workspace", "created_at_ms"), Rule.PLAIN),
        "attempt_id": Rule.CUT,
        **dict.fromkeys(
            (
                "state",
                "not_before_ms",
                "lease_token",
                "lease_expires_at_ms",
                "claims",
                "error_code",
                "finished_at_ms",
            ),
            Rule.PLAIN,
        ),
    },
    "embedding_job_owners": {
        "job_id": Rule.FOLLOWS,
        "owner_kind": Rule.PLAIN,
        "owner_id": Rule.FOLLOWS,
    },
    "forget_proposals": {
        "run_id": Rule.FOLLOWS,
        **dict.fromkeys(("id", "token", "created_at_ms"), Rule.PLAIN),
    },
    "forget_proposal_sources": {"proposal_id": Rule.FOLLOWS, "source_id": Rule.FOLLOWS},
    "forget_proposal_facts": {"proposal_id": Rule.FOLLOWS, "fact_id": Rule.FOLLOWS},
    "erasures": dict.fromkeys(
        ("position", "entity", "public_id", "identity", "erased_at_ms", "hash"), Rule.KEPT
    ),
}
