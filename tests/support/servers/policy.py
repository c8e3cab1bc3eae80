"""The policy that docs/configuration.md gives, as AWS reads it."""

import json
import re
from typing import Any, Final

from support.repository import REPOSITORY

DOCUMENTED: Final = REPOSITORY / "docs" / "configuration.md"


def documented_statements(service: str, **places: str) -> list[dict[str, Any]]:
    """Those of one service's actions, with <places> filled in."""
    [policy] = re.findall(r"```json\n(\{\n  \"Version\".*?)```", DOCUMENTED.read_text(), re.DOTALL)
    for name, place in places.items():
        policy = policy.replace(f"<{name}>", place)
    statements: list[dict[str, Any]] = json.loads(policy)["Statement"]
    return [statement for statement in statements if statement["Action"][0].startswith(f"{service}:")]


def documented_actions_of_commands(service: str) -> set[str]:
    """Those of one service's actions that only commands need."""
    [table] = re.findall(r"^### Permissions of commands\n(.*?)^## ", DOCUMENTED.read_text(), re.DOTALL | re.MULTILINE)
    return set(re.findall(rf"`({service}:\w+)`", table))


def documented_statement_of_s3_tables() -> dict[str, Any]:
    [statement] = re.findall(r"```json\n(\{\n  \"Effect\".*?)```", DOCUMENTED.read_text(), re.DOTALL)
    found: dict[str, Any] = json.loads(statement)
    return found
