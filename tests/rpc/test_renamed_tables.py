"""Another engine gives a table of the task the name of another one. No row gets into the wrong table, and no backfill
replaces the rows of another binding."""

from collections.abc import Callable
from pathlib import Path
from typing import Final, cast

import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.config.values import RETAIN_EXISTING_DATA
from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.iceberg.fences.renamed_tables import WrittenTable, find_renamed_tables
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from connector.session.open_tables import open_tables
from connector.spark.jvm.start_spark import SessionSpark
from protocol import request
from protocol.flow import WHOLE_RANGE, MaterializationBinding, ValidateBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, local_config, materialization
from support.bindings import materialization_binding as binding
from support.rows.staged_rows import staged
from support.snapshots import check_text
from support.tables.local_tables import ids_of, local_catalog

ORDERS, RETURNS, AWAY = (TableIdentifier("shop", name) for name in ("orders", "returns", "away"))
COLLECTION: Final = collection(ID, DOCUMENT)
BEFORE: Final = tuple(binding(COLLECTION, document="flow_document", table=path.name) for path in (ORDERS, RETURNS))
BACKFILLED: Final = binding(COLLECTION, document="flow_document", table="orders", backfill=1)


class Shop:
    """A task with two tables of the same columns. Each has rows of its binding."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.config = local_config(warehouse)
        self.last = materialization(self.config, *BEFORE)
        apply(request.Apply(self.last))
        self.catalog = local_catalog(warehouse)
        self.store(ORDERS, 1)
        self.store(RETURNS, 2)

    def store(self, path: TableIdentifier, number: int) -> None:
        writer = WriterId(MATERIALIZATION, f"shop%2F{path.name}.v0", WHOLE_RANGE.key_range)
        row = {"id": number, "flow_document": "{}"}
        commit_all_or_raise(self.catalog, [staged(self.catalog, row, writer=writer, path=path)])

    def rename(self, before: TableIdentifier, after: TableIdentifier) -> None:
        self.catalog.rename_table(before, after)

    def exchange(self) -> None:
        self.rename(ORDERS, AWAY)
        self.rename(RETURNS, ORDERS)
        self.rename(AWAY, RETURNS)

    def open(self) -> None:
        config, resources = parse(self.config, [each.resource_config for each in self.last.bindings])
        with open_tables(request.Open(self.last), config, resources, cast(SessionSpark, None)):
            pass

    def apply(self, *bindings: MaterializationBinding) -> None:
        apply(request.Apply(materialization(self.config, *bindings), last_materialization=self.last))

    def begin_anew(self) -> None:
        """Both bindings are backfilled, and keep their rows."""
        self.config = local_config(self.warehouse, feature_flags=RETAIN_EXISTING_DATA)
        bindings = [
            binding(COLLECTION, document="flow_document", table=path.name, backfill=1) for path in (ORDERS, RETURNS)
        ]
        self.apply(*bindings)
        self.last = materialization(self.config, *bindings)

    def validate(self, *bindings: MaterializationBinding) -> None:
        proposed = (ValidateBinding(each.resource_config, each.collection, backfill=each.backfill) for each in bindings)
        message = request.Validate(
            MATERIALIZATION, config=self.config, bindings=tuple(proposed), last_materialization=self.last
        )
        validate(message)


def read(catalog: Catalog) -> list[list[int]]:
    return [ids_of(catalog, path) for path in (ORDERS, RETURNS)]


@pytest.mark.parametrize(
    "do",
    [
        Shop.open,
        lambda shop: shop.apply(*BEFORE),
        lambda shop: shop.apply(BACKFILLED, BEFORE[1]),
        lambda shop: shop.validate(BACKFILLED, BEFORE[1]),
    ],
    ids=["open", "publish", "backfill", "validate"],
)
def test_two_tables_that_have_exchanged_their_names_are_refused(tmp_path: Path, do: Callable[[Shop], None]) -> None:
    shop = Shop(tmp_path)
    shop.exchange()
    with pytest.raises(UserError) as error:
        do(shop)
    assert len(str(error.value).splitlines()) == 2, "a line for each table"
    check_text("apply_errors", "tables have exchanged their names", str(error.value).splitlines()[0])
    assert read(shop.catalog) == [[2], [1]]
    shop.exchange()
    do(shop)


@pytest.mark.parametrize("do", [Shop.open, lambda shop: shop.apply(*shop.last.bindings)], ids=["open", "publish"])
def test_tables_that_have_kept_their_rows_in_a_backfill_are_known_by_their_owners(
    tmp_path: Path, do: Callable[[Shop], None]
) -> None:
    shop = Shop(tmp_path)
    shop.begin_anew()
    shop.exchange()
    with pytest.raises(UserError, match=r"rows that the task has stored for table shop\.returns"):
        do(shop)
    shop.exchange()
    do(shop)


def test_a_table_that_has_the_name_of_another_one_is_refused(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.rename(ORDERS, AWAY)
    shop.rename(RETURNS, ORDERS)
    with pytest.raises(UserError, match=r"rows that the task has stored for table shop\.returns"):
        shop.apply(*BEFORE)
    assert not shop.catalog.table_exists(RETURNS)


def test_a_new_binding_does_not_get_the_table_of_another_one(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.rename(RETURNS, AWAY)
    with pytest.raises(UserError, match=r"table shop\.away has rows that the task has stored for table shop\.returns"):
        shop.apply(*BEFORE, binding(COLLECTION, document="flow_document", table="away"))


def test_a_table_that_is_renamed_with_its_binding_goes_on(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    shop.rename(ORDERS, AWAY)
    shop.apply(binding(COLLECTION, document="flow_document", table="away"), BEFORE[1])
    shop.store(AWAY, 3)
    assert ids_of(shop.catalog, AWAY) == [1, 3]


def test_two_bindings_of_one_table_are_not_taken_for_renamed_tables(tmp_path: Path) -> None:
    """Apply refuses them. At open, the fence stops one of them."""
    properties = Shop(tmp_path).catalog.load_table(ORDERS).properties
    writers = (WriterId(MATERIALIZATION, f"shop%2Forders.v{number}", WHOLE_RANGE.key_range) for number in range(2))
    assert not [*find_renamed_tables([WrittenTable(ORDERS, writer, properties) for writer in writers])]
