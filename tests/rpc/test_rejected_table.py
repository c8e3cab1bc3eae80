"""The table of rejected rows: refused where it cannot be, made and replaced with its binding's table, and bound."""

from pathlib import Path

import msgspec
import pytest
from pyiceberg.catalog import Catalog

from connector.encoding.lines.invalid_cells import RejectedRow
from connector.host.errors import UserError
from connector.iceberg.bound_table import Quarantine, bind_all
from connector.iceberg.fences import fence
from connector.iceberg.metadata.table_properties import find_generation
from connector.model.binding import RowSettings
from connector.model.invalid_values import OnInvalid
from connector.model.state import StagedCommit, WriterId, encode_added
from connector.model.table_identifier import Owner, TableIdentifier
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from connector.session.recovery import check_finished
from protocol import request, response
from protocol.flow import WHOLE_RANGE, Json, Materialization, MaterializationBinding, ValidateBinding
from support.bindings import ID, MATERIALIZATION, collection, local_config, materialization, projection
from support.bindings import materialization_binding as plain_binding
from support.rows.staged_files import removed_from_state, stage
from support.rows.staged_rows import WRITER
from support.tables.local_tables import foreign_table

VALUE = fence.new_value()

ORDERS = collection(ID, projection("note", "string"))
TABLE, REJECTED = ("shop", "orders"), ("shop", "orders__rejected")
CREATED = (
    "create table shop.orders__rejected ('reason' string not null, 'field' string not null, 'key' string not null, "
    "'document' string not null, 'rejected_at' timestamptz not null)"
)


def binding(
    table: str = "orders", backfill: int = 0, on_invalid: str = "quarantine", schema_evolution: str = "full"
) -> MaterializationBinding:
    bound = plain_binding(ORDERS, table=table, backfill=backfill, properties={"color": "red"})
    settings = {"on_invalid": on_invalid, "schema_evolution": schema_evolution}
    return msgspec.structs.replace(bound, resource_config={**bound.resource_config, **settings})


def applied(
    warehouse: Path, bound: MaterializationBinding, last: MaterializationBinding | None = None, state: Json = None
) -> response.Applied:
    task = materialization(local_config(warehouse), bound)
    return apply(request.Apply(task, last_materialization=materialization(None, last) if last else None, state=state))


def refused(warehouse: Path, *tables: str, **advanced: Json) -> list[str]:
    """What validate says against bindings to these tables; those in capital letters have no quarantine."""
    bindings = tuple(
        ValidateBinding({"table": table, "on_invalid": "stop" if table.isupper() else "quarantine"}, ORDERS)
        for table in tables
    )
    message = request.Validate(MATERIALIZATION, config=local_config(warehouse, **advanced), bindings=bindings)
    try:
        assert len(validate(message).bindings) == len(tables)
    except UserError as error:
        return str(error).splitlines()
    return []


def test_it_is_made_with_the_bindings_table_and_recorded_as_its_bindings_own(tmp_path: Path, catalog: Catalog) -> None:
    answer = applied(tmp_path, binding())

    assert answer.action_description.splitlines()[-1] == CREATED
    table = catalog.load_table(REJECTED)
    assert Owner.of(table.properties) == Owner(MATERIALIZATION, "shop%2Forders.v0")
    assert table.properties["color"] == "red"
    assert [*RejectedRow._fields, "rejected_at"] == [column.name for column in table.schema().fields]
    assert applied(tmp_path, binding(), last=binding()) == response.Applied()


def test_it_is_its_bindings_own_again_when_it_comes_back_after_a_backfill_without_it(
    tmp_path: Path, catalog: Catalog
) -> None:
    applied(tmp_path, binding())
    without = binding(backfill=1, on_invalid="stop")
    applied(tmp_path, without, last=binding())
    applied(tmp_path, binding(backfill=1), last=without)

    owner = Owner.of(catalog.load_table(REJECTED).properties)
    assert owner == Owner(MATERIALIZATION, "shop%2Forders.v1", has_older_rows=True)
    assert applied(tmp_path, binding(backfill=1), last=binding(backfill=1)) == response.Applied()
    task = Materialization(MATERIALIZATION, bindings=(binding(backfill=1),))
    tables = bind_all(catalog, task, WHOLE_RANGE.key_range, [RowSettings(OnInvalid.QUARANTINE)])
    check_finished(tables, [], [])  # of the first session after the backfill


@pytest.mark.parametrize(
    "partitions",
    [{"partition_by": "bucket(4, id)"}, {"partition_fields": [{"field": "id", "transform": "bucket[4]"}]}],
    ids=["as an expression", "as a list"],
)
def test_it_has_none_of_its_bindings_partitions_and_no_order(
    tmp_path: Path, catalog: Catalog, partitions: dict[str, Json]
) -> None:
    bound = binding()
    settings = {**partitions, "sort_by": "id"}
    applied(tmp_path, msgspec.structs.replace(bound, resource_config={**bound.resource_config, **settings}))
    assert [len(catalog.load_table(path).spec().fields) for path in (TABLE, REJECTED)] == [1, 0]
    assert [len(catalog.load_table(path).sort_order().fields) for path in (TABLE, REJECTED)] == [1, 0]


@pytest.mark.parametrize("on_invalid", ["stop", "null"])
def test_without_quarantine_there_is_none(tmp_path: Path, catalog: Catalog, on_invalid: str) -> None:
    applied(tmp_path, binding(on_invalid=on_invalid))

    assert not catalog.table_exists(REJECTED)


@pytest.mark.parametrize("evolution", ["strict", "full"])
def test_it_comes_when_quarantine_is_turned_on_and_stays_when_it_is_turned_off(
    tmp_path: Path, catalog: Catalog, evolution: str
) -> None:
    applied(tmp_path, binding(on_invalid="stop"))
    answer = applied(tmp_path, binding(schema_evolution=evolution), last=binding(on_invalid="stop"))

    assert answer.action_description == CREATED
    assert applied(tmp_path, binding(on_invalid="stop"), last=binding()) == response.Applied()
    assert catalog.table_exists(REJECTED)


def test_a_backfill_replaces_it_too_and_drops_what_was_staged_for_it(tmp_path: Path, catalog: Catalog) -> None:
    applied(tmp_path, binding())
    staged = rejected_entry(catalog)
    answer = applied(tmp_path, binding(backfill=1), last=binding(), state=encode_added([staged]))

    table = catalog.load_table(REJECTED)
    assert find_generation(table, MATERIALIZATION).former == (staged.table_uuid,) == (str(table.metadata.table_uuid),)
    assert "delete all rows of table shop.orders__rejected for a backfill" in answer.action_description
    assert "drop 1 staged transactions of table shop.orders__rejected (2 rows)" in answer.action_description
    assert answer.state
    assert answer.state.updated == removed_from_state(staged)
    again = applied(tmp_path, binding(backfill=1), last=binding())
    assert again == response.Applied()


def rejected_entry(catalog: Catalog) -> StagedCommit:
    return stage(catalog, TableIdentifier(*REJECTED), WRITER, 1, 2)


def test_open_binds_it_behind_all_bindings_tables_under_the_state_key_of_its_binding(
    tmp_path: Path, catalog: Catalog
) -> None:
    bindings = (binding("orders"), binding("customers", on_invalid="stop"), binding("events"))
    task = Materialization(MATERIALIZATION, config=local_config(tmp_path), bindings=bindings)
    apply(request.Apply(task))
    writer = WriterId(MATERIALIZATION, "shop%2Fevents.v0", WHOLE_RANGE.key_range)
    with catalog.load_table(("shop", "events__rejected")).transaction() as transaction:
        transaction.set_properties({fence.property_name(writer): VALUE})

    settings = [
        RowSettings(OnInvalid.QUARANTINE),
        RowSettings(),
        RowSettings(OnInvalid.QUARANTINE, max_rejected_ratio=0.5),
    ]
    tables = bind_all(catalog, task, WHOLE_RANGE.key_range, settings)

    assert [table.binding.path[1] for table in tables] == [
        "orders",
        "customers",
        "events",
        "orders__rejected",
        "events__rejected",
    ]
    assert [table.quarantine for table in tables] == [Quarantine(3, 0.1), None, Quarantine(4, 0.5), None, None]
    assert [table.binding.index for table in tables] == [0, 1, 2, 3, 4]
    assert [table.binding.on_invalid for table in tables] == [
        OnInvalid.QUARANTINE,
        OnInvalid.STOP,
        OnInvalid.QUARANTINE,
        OnInvalid.STOP,
        OnInvalid.STOP,
    ]
    assert tables[4].writer == writer
    assert dict(tables[4].properties)[fence.property_name(writer)] == VALUE
    assert [column.field for column in tables[4].binding.columns] == [*RejectedRow._fields, "rejected_at"]


def test_open_needs_it(tmp_path: Path, catalog: Catalog) -> None:
    applied(tmp_path, binding(on_invalid="stop"))
    task = Materialization(MATERIALIZATION, bindings=(binding(),))

    with pytest.raises(UserError, match=r"table shop\.orders__rejected does not exist.*publish the task again"):
        bind_all(catalog, task, WHOLE_RANGE.key_range, [RowSettings(OnInvalid.QUARANTINE)])


def test_validate_accepts_it_before_it_is_there_and_afterwards(tmp_path: Path) -> None:
    assert refused(tmp_path, "customers") == []
    applied(tmp_path, binding())
    assert refused(tmp_path, "Orders", feature_flags="allow_existing_tables_for_new_bindings") == []


@pytest.mark.parametrize("tables", [("orders", "ORDERS__REJECTED"), ("ORDERS__REJECTED", "orders")])
def test_validate_refuses_a_binding_to_the_table_of_anothers_rejected_rows(
    tmp_path: Path, tables: tuple[str, str]
) -> None:
    [problem] = refused(tmp_path, *tables)

    own, other = [tables.index(name) for name in ("ORDERS__REJECTED", "orders")]
    both = f"bindings[{own}] (acme/orders) and bindings[{other}] (acme/orders)"
    assert problem.startswith(f"{both} have the same table shop.orders__rejected: ")
    assert "a binding's rejected rows go to a table with the name of its table and __rejected" in problem


def test_validate_refuses_a_name_that_is_too_long_with_what_is_appended_to_it(tmp_path: Path) -> None:
    assert refused(tmp_path, "t" * 245) == []
    [problem] = refused(tmp_path, "t" * 246)

    assert "would have a name of 256 characters" in problem
    assert "give the binding's table a shorter name" in problem


def test_validate_refuses_a_table_of_that_name_that_was_not_made_for_rejected_rows(
    tmp_path: Path, catalog: Catalog
) -> None:
    foreign_table(catalog, REJECTED)
    foreign_table(catalog, ("shop", "a__rejected"), properties=owned_by("acme/other"))
    foreign_table(catalog, ("shop", "b__rejected"), properties=owned_by(MATERIALIZATION))
    problems = refused(tmp_path, "orders", "a", "b")

    assert [problem.partition(", but")[0] for problem in problems] == [
        f"bindings[{n}] (acme/orders): rejected rows need the table shop.{name}__rejected"
        for n, name in enumerate(("orders", "a", "b"))
    ]


def owned_by(materialization: str) -> dict[str, str]:
    return {"flow.owner": Owner(materialization, "shop%2Forders.v0").encode()}
