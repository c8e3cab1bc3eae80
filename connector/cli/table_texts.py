"""The writers of a table and the commits that are staged for it, as texts and as JSON."""

import json
from collections.abc import Iterator, Sequence
from typing import Any, Final

from connector.iceberg.commits.reset import Judged, Verdict
from connector.iceberg.commits.writers import RecordedWriter

VERDICT_TEXTS: Final = {Verdict.OTHER_TABLE: "staged for a table that this one has replaced"}


def describe_writers(writers: Sequence[RecordedWriter]) -> Iterator[str]:
    """Describe each writer in several lines."""
    for writer in writers:
        owner = writer.owner
        yield f"{owner.materialization}, state key {owner.state_key}" if owner else "a writer that no snapshot names"
        yield f"  key range    {writer.key_range}{' (closed)' if writer.is_closed else ''}"
        yield f"  property     {writer.property_name}"
        yield f"  value        {writer.value}"
        yield f"  last commit  {writer.last_commit or 'in no snapshot that the table still has'}"
        if writer.last_reset:
            yield f"  last reset   {writer.last_reset}"


def describe_staged(verdicts: Sequence[Judged]) -> Iterator[str]:
    """Describe each staged commit in two lines."""
    for verdict in verdicts:
        commit = verdict.staged
        yield f"state key {commit.writer.state_key}, key range {commit.writer.key_range}"
        staged = f"{commit.rows} rows in {commit.file_count} file(s)"
        text = VERDICT_TEXTS.get(verdict.verdict, verdict.verdict)
        yield f"  {commit.prev or 'none'} -> {commit.next}: {staged}: {text}"


def encode_writers(writers: Sequence[RecordedWriter]) -> list[dict[str, Any]]:
    """Return the writers as JSON values."""
    return [
        {
            "property": writer.property_name,
            "keyRange": writer.key_range,
            "value": writer.value,
            "isClosed": writer.is_closed,
            "materialization": writer.owner and writer.owner.materialization,
            "stateKey": writer.owner and writer.owner.state_key,
            "lastCommit": writer.last_commit and writer.last_commit.isoformat(),
            "lastReset": json.loads(writer.last_reset) if writer.last_reset else None,
        }
        for writer in writers
    ]


def encode_staged(verdicts: Sequence[Judged]) -> list[dict[str, Any]]:
    """Return the staged commits as JSON values."""
    return [
        {
            "stateKey": verdict.staged.writer.state_key,
            "keyRange": verdict.staged.writer.key_range,
            "prev": verdict.staged.prev,
            "next": verdict.staged.next,
            "rows": verdict.staged.rows,
            "files": verdict.staged.file_count,
            "verdict": verdict.verdict,
        }
        for verdict in verdicts
    ]
