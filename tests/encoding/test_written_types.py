"""The types that are written are those that Arrow has a type for, a rule, and cells that are decoded at once."""

from connector.encoding.lines import tuple_columns
from connector.encoding.values import column_types
from connector.model.binding import WRITTEN_TYPES


def test_each_written_type_has_an_arrow_type_and_a_rule_and_no_other_type_has_one() -> None:
    assert column_types._ARROW_TYPES.keys() == column_types._RULES.keys() == WRITTEN_TYPES
    assert tuple_columns._CELL_TYPES.keys() == WRITTEN_TYPES
