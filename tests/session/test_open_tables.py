"""What a session learns from all of its tables together."""

from typing import Any, Final

import pytest

from connector.host.errors import OlderTableError
from connector.iceberg.bound_table import BoundTable
from connector.iceberg.fences import fence
from connector.model.binding import PLAIN, Binding, KeyPart, Updates
from connector.model.properties import Properties
from connector.model.state import WriterId
from connector.model.table_identifier import OWNER_PROPERTY, Owner
from connector.session.open_tables import OpenedTables
from connector.session.recovery import Recovered, check_fences
from protocol.flow import WHOLE_RANGE
from support.bindings import MATERIALIZATION, PATH
from support.snapshots import check_text

WRITER: Final = WriterId(MATERIALIZATION, "shop%2Forders.v0", WHOLE_RANGE.key_range)
OWN: Final = {OWNER_PROPERTY: Owner(WRITER.materialization, WRITER.state_key).encode()}


def bound(properties: dict[str, str]) -> BoundTable:
    binding = Binding(0, WRITER.state_key, PATH, (), (), None, updates=Updates((KeyPart(1, "/id"),), 2))
    access: Any = None
    return BoundTable(binding, WRITER, "a-uuid", PLAIN, 0, "file:///orders", Properties(properties), access)


@pytest.mark.parametrize(("others", "loads_all"), [([OWN], False), ([{}], True), ([], False)])
def test_all_keys_are_loaded_if_one_table_may_have_rows_of_others(
    others: list[dict[str, str]], loads_all: bool
) -> None:
    unused: Any = None
    tables = [bound(OWN), *map(bound, others)]
    opened = OpenedTables(unused, unused, unused, (), Recovered((), tables), unused)
    assert opened.may_have_other_rows is loads_all


def test_a_session_does_not_begin_on_a_table_that_lacks_what_was_recovered() -> None:
    """The catalog has answered from a replica or a cache."""
    name, first = fence.property_name(WRITER), fence.new_value()
    newer, older = bound({name: fence.new_value(first)}), bound({name: first})
    fences = fence.LastFences()
    check_fences([older], fences)
    fences.note_opened(newer.table_id, newer.properties, WRITER)
    check_fences([newer], fences)
    with pytest.raises(OlderTableError) as error:
        check_fences([older], fences)
    hidden = {name: "PROPERTY", first: "OLDER", newer.properties[name]: "NEWER"}
    check_text("commit_errors", "a table that lacks the commits that were recovered", str(error.value), hidden)
