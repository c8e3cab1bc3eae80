"""The fence values that a table has passed, also by a reset. No commit that was staged on them can succeed any more."""

import secrets
from collections.abc import Mapping

from connector.iceberg.fences import fence
from connector.model.state import StagedCommit, strip_marks


def reset_value(value: str) -> str:
    """Return a value that means the same as `value` to a recovery, but that no process has read yet.

    So no process stages on it. Files that a stale process has staged on `value` itself may be deleted by now.
    """
    return f"{fence.CLOSED}{secrets.token_hex(4)}:{strip_marks(value)}"


def is_passed(value: str, recorded: str) -> bool:
    """Whether no commit that was staged on `value` can succeed any more. The connector state does not matter.

    A value with a higher ordinal number is still to come. A property that was changed by hand proves nothing. After a
    reset, the rows that the operator wants to add are staged on the value that was reset, so that one is not passed
    either.
    """
    if not fence.is_recorded_value(recorded) or value == recorded:
        return False
    newest_passed = fence.read_ordinal(recorded) - 1 if _is_reset_value(recorded) else fence.read_ordinal(recorded)
    return fence.read_ordinal(value) <= newest_passed


def is_void(value: str, recorded: str) -> bool:
    """Whether no commit that was staged on `value` can succeed any more, even if a connector state names it.

    A recovery may still commit what was staged on a closed value, which is the property's last one without its mark.
    """
    return is_passed(value, recorded) and fence.read_ordinal(value) < fence.read_ordinal(recorded)


def is_reset_since(first: StagedCommit, properties: Mapping[str, str]) -> bool:
    """Whether the fence of a writer was reset since its first pending commit was staged. The reset may have skipped
    commits that came before."""
    recorded = fence.read_value(properties, first.writer)
    return _is_reset_value(recorded) and first.prev != recorded


def _is_reset_value(value: str) -> bool:
    """Whether a recorded value comes from `reset_value`."""
    return value.count(":") > 1
