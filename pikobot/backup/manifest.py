"""What a backup says about itself: manifest.json, with versions, instance, end of the ledger, and every member.

It comes before the members, so that one pass over the file knows what each byte has to be. Names are those of
files of an instance and nothing else: what is unpacked can't land anywhere but there.
"""

import json
from pathlib import PurePosixPath
from typing import Annotated, Final, Literal, Self

from pydantic import BaseModel, ConfigDict, Field, ValidationError, model_validator
from pydantic.alias_generators import to_camel

FORMAT: Final = 1
SUMS_NAME = "manifest.sha256"
MANIFEST_NAME = "manifest.json"
DATABASE_NAME = "pikobot.sqlite3"
LEDGER_NAME = "erasures.jsonl"
CONFIG_NAME = "config.toml"
SKILLS_NAME = "skills"
MAX_MANIFEST_BYTES = 64 << 20

Sha256 = Annotated[str, Field(pattern="^[0-9a-f]{64}$")]


class _Model(BaseModel):
    model_config = ConfigDict(
        extra="forbid", frozen=True, strict=True, alias_generator=to_camel, populate_by_name=True
    )


class Member(_Model):
    """One file of the instance."""

    name: str
    size: Annotated[int, Field(ge=0)]
    sha256: Sha256
    executable: bool = False

    @model_validator(mode="after")
    def _is_a_place_in_an_instance(self) -> Self:
        parts = PurePosixPath(self.name).parts
        is_fixed = self.name in (DATABASE_NAME, LEDGER_NAME, CONFIG_NAME)
        is_skill = len(parts) > 1 and parts[0] == SKILLS_NAME and ".." not in parts
        if not (is_fixed or is_skill) or "/".join(parts) != self.name or "\0" in self.name:
            raise ValueError(f"{self.name!a} is no file of an instance")
        return self


class LedgerHead(_Model):
    """Where the erasure ledger of the snapshot ends."""

    position: Annotated[int, Field(ge=0)]
    hash: Sha256


class Manifest(_Model):
    """The content of manifest.json. ``format`` grows when an older program can't read what a newer one writes."""

    format: Literal[1]
    pikobot: str
    schema_version: Annotated[int, Field(ge=1)]
    instance: Annotated[str, Field(min_length=1)]
    created_at: str
    ledger: LedgerHead
    members: tuple[Member, ...]

    @model_validator(mode="after")
    def _is_whole(self) -> Self:
        names = [member.name for member in self.members]
        if len(set(names)) < len(names):
            raise ValueError("a member is there twice")
        missing = [name for name in (DATABASE_NAME, LEDGER_NAME, CONFIG_NAME) if name not in names]
        if missing:
            raise ValueError(f"{missing[0]} is missing")
        return self

    def to_bytes(self) -> bytes:
        document = self.model_dump(mode="json", by_alias=True)
        return json.dumps(document, ensure_ascii=False, indent=1).encode() + b"\n"


def parse_manifest(data: bytes) -> Manifest:
    """Raises `ValueError` that says what is wrong, for content of this or any other format."""
    try:
        return Manifest.model_validate_json(data)
    except ValidationError as error:
        first = error.errors(include_url=False, include_input=False)[0]
        where = ".".join(str(part) for part in first["loc"]) or "document"
        raise ValueError(f"{where}: {first['msg']}") from None
