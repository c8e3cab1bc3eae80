"""Readers look for rows with NaN. docs/reading.md says which rows they leave out."""

import math

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.types import DoubleType, NestedField

from connector.iceberg.commits.commit import commit_all_or_raise
from support.bindings import PATH
from support.rows.staged_rows import staged
from support.tables.altered_tables import ID, filled_table


@pytest.mark.parametrize("condition", ["price is nan", "price != 1.5"])
def test_pyarrow_still_leaves_out_nan_beside_one_other_number(catalog: Catalog, condition: str) -> None:
    """Once it does not, docs/reading.md need not say so."""
    filled_table(catalog, ID, NestedField(2, "price", DoubleType()))
    commit_all_or_raise(catalog, [staged(catalog, {"id": 1, "price": 1.5}, {"id": 2, "price": math.nan})])
    table = catalog.load_table(PATH)
    assert table.scan(condition).to_arrow().num_rows == 0
    assert table.scan("price is not nan").to_arrow()["id"].to_pylist() == [1]
