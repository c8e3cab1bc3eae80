"""A table is dropped or renamed, and another task creates one of its name. The binding that had the name does not take
that table, unless its config says so."""

from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Final, cast

import msgspec
import pytest

from connector.config.settings import parse
from connector.config.values import RETAIN_EXISTING_DATA
from connector.host.errors import UserError
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.state import WriterId
from connector.model.table_identifier import TableIdentifier
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from connector.session.open_tables import open_tables
from connector.spark.jvm.start_spark import SessionSpark
from protocol import request
from protocol.flow import WHOLE_RANGE, Json, Materialization, ValidateBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.rows.staged_rows import staged
from support.snapshots import check_text
from support.tables.local_tables import local_catalog

ORDERS: Final = TableIdentifier("shop", "orders")
COLLECTION: Final = collection(ID, DOCUMENT, projection("note", "string"))


class Shop:
    """Two tasks with a table of the same name. The second one has created it, after that of the first was dropped."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.catalog = local_catalog(warehouse)
        self.last = self.configure()
        apply(request.Apply(self.last))
        self.catalog.drop_table(ORDERS)
        apply(request.Apply(msgspec.structs.replace(self.last, name="acme/other")))

    def configure(self, *fields: str, flags: str = "", backfill: int = 0, **resource: Json) -> Materialization:
        """The first task, with these settings of its binding."""
        bound = binding(COLLECTION, *fields, document="flow_document", backfill=backfill)
        config = {**bound.resource_config, **resource}
        changed = msgspec.structs.replace(bound, resource_config=config)
        return materialization(local_config(self.warehouse, feature_flags=flags), changed)

    @property
    def metadata(self) -> str:
        return self.catalog.load_table(ORDERS).metadata_location

    @property
    def disabled(self) -> Materialization:
        """The first task while its binding was disabled."""
        return msgspec.structs.replace(self.last, bindings=(), inactive_bindings=self.last.bindings)

    def store(self) -> None:
        writer = WriterId(MATERIALIZATION, "shop%2Forders.v0", WHOLE_RANGE.key_range)
        row = {"id": 1, "flow_document": "{}"}
        commit_all_or_raise(self.catalog, [staged(self.catalog, row, writer=writer, path=ORDERS)])


def open_task(task: Materialization, last: Materialization) -> None:
    del last
    config, resources = parse(task.config, [each.resource_config for each in task.bindings])
    with open_tables(request.Open(task), config, resources, cast(SessionSpark, None)):
        pass


def apply_task(task: Materialization, last: Materialization) -> None:
    apply(request.Apply(task, last_materialization=last))


def validate_task(task: Materialization, last: Materialization) -> None:
    proposed = (
        ValidateBinding(each.resource_config, each.collection, backfill=each.backfill) for each in task.bindings
    )
    validate(request.Validate(task.name, config=task.config, bindings=tuple(proposed), last_materialization=last))


Act = Callable[[Materialization, Materialization], None]
EACH_REQUEST: Final = pytest.mark.parametrize("act", [open_task, apply_task, validate_task])


@pytest.mark.parametrize(
    ("act", "fields", "is_active"),
    [
        (open_task, [], True),
        (apply_task, ["note"], True),
        (apply_task, ["note"], False),
        (validate_task, [], True),
        (validate_task, [], False),
    ],
)
def test_a_binding_does_not_take_the_table_of_another_task(
    tmp_path: Path, act: Act, fields: list[str], is_active: bool
) -> None:
    shop = Shop(tmp_path)
    before = shop.metadata
    with pytest.raises(UserError) as error:
        act(shop.configure(*fields), shop.last if is_active else shop.disabled)
    text = str(error.value).removeprefix("bindings[0] (acme/orders): ")
    check_text("apply_errors", "another task has created a table of the binding's name", text)
    assert shop.metadata == before


@pytest.mark.parametrize("act", [apply_task, validate_task])
def test_a_backfill_that_keeps_the_rows_does_not_take_it_either(tmp_path: Path, act: Act) -> None:
    shop = Shop(tmp_path)
    with pytest.raises(UserError, match=r"table shop\.orders belongs to another task"):
        act(shop.configure(flags=RETAIN_EXISTING_DATA, backfill=1), shop.last)


@EACH_REQUEST
@pytest.mark.parametrize(
    ("resource", "flags"),
    [
        ({"existing_table": "append"}, ""),
        ({"existing_table": "require"}, ""),
        ({}, "allow_existing_tables_for_new_bindings"),
    ],
)
def test_a_binding_takes_it_if_its_config_says_so(
    tmp_path: Path, act: Act, resource: dict[str, Json], flags: str
) -> None:
    shop = Shop(tmp_path)
    act(shop.configure(flags=flags, **resource), shop.last)


@EACH_REQUEST
def test_a_table_of_another_task_that_the_task_has_written_stays_its_own(tmp_path: Path, act: Act) -> None:
    """The setting was removed after the first rows. It is for new bindings."""
    shop = Shop(tmp_path)
    shop.store()
    act(shop.configure(), shop.last)


def test_rejected_rows_do_not_go_to_the_table_of_another_task(tmp_path: Path) -> None:
    shop = Shop(tmp_path)
    rejecting = shop.configure(on_invalid="quarantine", existing_table="append")
    apply_task(msgspec.structs.replace(rejecting, name="acme/other"), shop.last)
    with pytest.raises(UserError) as error:
        open_task(rejecting, shop.last)
    check_text("apply_errors", "another task has created a table of the name for rejected rows", str(error.value))


def test_another_task_adds_a_column_while_the_rows_of_a_backfill_are_awaited(tmp_path: Path) -> None:
    """Its rows need the column in the table as it is, and not only in the one that the backfill makes."""
    shop = Shop(tmp_path)
    owner = partial(msgspec.structs.replace, name="acme/other")
    apply_task(owner(shop.configure("note", backfill=1)), owner(shop.last))
    joined = shop.configure("note", existing_table="append")
    for act in (validate_task, apply_task, open_task):
        act(joined, shop.last)
    assert [column.name for column in shop.catalog.load_table(ORDERS).schema().fields] == [
        "id",
        "flow_document",
        "note",
    ]
