"""Tables and commits in AWS Glue, played by a stand-in that refuses what Glue refuses; files on a real S3 server."""

import uuid
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from http import HTTPStatus
from typing import Any, Final

import pyarrow as pa
import pytest
from botocore.exceptions import ClientError
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import CommitFailedException
from pyiceberg.table import Table
from pyiceberg.table.update import SetPropertiesUpdate
from pyiceberg.types import DecimalType, LongType, StringType

from connector.config.endpoint_config import EndpointConfig
from connector.config.settings import parse
from connector.evolution.plan_changes import MAX_DOC, plan_changes
from connector.evolution.table_change import AddColumn, CreateNamespace, CreateTable, TableChange
from connector.evolution.target import NewColumn, Target
from connector.host.errors import FencedError, UserError
from connector.host.interruption import NEVER
from connector.iceberg.catalogs.opening import open_catalog, table_location, translate_errors
from connector.iceberg.catalogs.table_optimizers import is_compacted_by_service
from connector.iceberg.commits import commit
from connector.iceberg.commits.reset import Decision, perform_reset, plan_reset
from connector.iceberg.fences import fence
from connector.iceberg.loaded_tables import find_own_tables, load_table
from connector.iceberg.maintenance.expire_snapshots import expire_all_snapshots, expire_snapshots
from connector.iceberg.metadata.retention import MAX_AGE
from connector.iceberg.perform_changes import evolve
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import Owner, TableIdentifier
from connector.storage.stored_files import files_under
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import stage, stage_chain
from support.servers.endpoint_configs import aws_keys, glue, on_s3
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, Request
from support.servers.policy import documented_actions_of_commands, documented_statements
from support.servers.s3_server import S3Server
from support.snapshots import check_text
from support.tables.arranged_tables import check_arrangements
from support.tables.compacted_tables import check_compactions
from support.tables.expiring_tables import check_history_after_expiries
from support.tables.found_tables import find
from support.tables.local_tables import alterer, ids_of

pytestmark = [pytest.mark.catalog, pytest.mark.usefixtures("no_pauses")]

KEY_RANGE: Final = WHOLE_RANGE.key_range
WRITER: Final = WriterId("acme/warehouse", "orders.v1", KEY_RANGE)
OWNER: Final = Owner(WRITER.materialization, WRITER.state_key)
ID: Final = NewColumn("id", "id", LongType(), required=True, doc="k" * MAX_DOC, is_indispensable=True)


def is_update(request: Request) -> bool:
    return request.target == "AWSGlue.UpdateTable"


@pytest.fixture
def path() -> TableIdentifier:
    return TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")


@pytest.fixture
def endpoint(s3_server: S3Server, bucket: str, path: TableIdentifier) -> EndpointConfig:
    return parse(on_s3(s3_server, bucket, path[0], glue()), [])[0]


@pytest.fixture
def catalog(glue_proxy: FaultProxy, endpoint: EndpointConfig, monkeypatch: pytest.MonkeyPatch) -> Iterator[Catalog]:
    """The connector's, and the address that its clients find from now on."""
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_proxy.uri)
    with open_catalog(endpoint) as opened:
        yield opened


@pytest.fixture
def table(catalog: Catalog, endpoint: EndpointConfig, path: TableIdentifier) -> Table:
    """There already, when the test begins."""
    fit(catalog, endpoint, path, ID)
    return catalog.load_table(path)


def fit(
    catalog: Catalog, endpoint: EndpointConfig, path: TableIdentifier, *columns: NewColumn
) -> Sequence[TableChange]:
    target = Target(path, OWNER, columns, {}, replaces=False)
    return evolve(catalog, path, table_location(endpoint, path), partial(plan_changes, target=target), alterer())


def parameters(glue_client: Any, path: TableIdentifier) -> dict[str, str]:
    found: dict[str, str] = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]["Parameters"]
    return found


def test_a_table_that_is_not_iceberg_s_is_refused(catalog: Catalog, path: TableIdentifier, glue_client: Any) -> None:
    glue_client.create_database(DatabaseInput={"Name": path[0]})
    glue_client.create_table(DatabaseName=path[0], TableInput={"Name": path[1], "Parameters": {"table_type": "HIVE"}})
    with pytest.raises(UserError) as error:
        find(catalog, path)
    check_text("catalog_errors", "Glue: no Iceberg table", str(error.value), {path[0]: "DATABASE"})


def finish(catalog: Catalog, *staged: StagedCommit) -> None:
    commit.commit_all_or_raise(catalog, staged)


def test_a_table_is_created_and_altered_as_glue_s_readers_expect_it(
    catalog: Catalog, endpoint: EndpointConfig, glue_client: Any, path: TableIdentifier
) -> None:
    note = NewColumn(
        "$ %s '\"` {} a.b/💩", "$ %s '\"` {} a.b/💩", StringType(), required=False, doc="", is_indispensable=False
    )
    assert [type(change) for change in fit(catalog, endpoint, path, ID)] == [CreateNamespace, CreateTable]
    assert fit(catalog, endpoint, path, ID, note) == [AddColumn(note)]
    assert fit(catalog, endpoint, path, ID, note) == []
    price, more_digits = (
        NewColumn("price", "price", DecimalType(precision, 2), required=False, doc="", is_indispensable=False)
        for precision in (9, 20)
    )
    fit(catalog, endpoint, path, ID, note, price)
    fit(catalog, endpoint, path, ID, note, more_digits)
    table = catalog.load_table(path)
    found = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    assert found["TableType"] == "EXTERNAL_TABLE"
    assert found["StorageDescriptor"]["Location"] == table.location() == table_location(endpoint, path)
    assert [(column["Name"], column["Type"]) for column in found["StorageDescriptor"]["Columns"]] == [
        ("id", "bigint"),
        (note.name, "string"),
        ("price", "decimal(20,2)"),
    ]
    assert (found["Parameters"]["table_type"], found["Parameters"]["metadata_location"]) == (
        "ICEBERG",
        table.metadata_location,
    )
    assert Owner.of(found["Parameters"]) == OWNER


def test_commits_keep_what_people_have_set_in_glue(
    catalog: Catalog, endpoint: EndpointConfig, glue_client: Any, path: TableIdentifier
) -> None:
    note, documented = (
        NewColumn(name, name, StringType(), required=False, doc=doc, is_indispensable=False)
        for name, doc in (("note", ""), ("documented", "ours"))
    )
    fit(catalog, endpoint, path, ID, note, documented)
    found = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    described = {name: found[name] for name in ("Name", "TableType", "Parameters", "StorageDescriptor")}
    described |= {"Description": "all orders", "Owner": "sales", "Retention": 7}
    for column in described["StorageDescriptor"]["Columns"]:
        column["Comment"] = f"theirs of {column['Name']}"
    glue_client.update_table(DatabaseName=path[0], TableInput=described)
    finish(catalog, stage(catalog, path, WRITER, 1))
    after = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    assert ids_of(catalog, path) == [1]
    assert {name: after[name] for name in ("Description", "Owner", "Retention")} == {
        "Description": "all orders",
        "Owner": "sales",
        "Retention": 7,
    }
    comments = {column["Name"]: column.get("Comment") for column in after["StorageDescriptor"]["Columns"]}
    assert comments == {"id": ID.doc, "note": "theirs of note", "documented": "ours"}


def test_a_doc_that_is_removed_is_not_kept_as_glue_s_comment(
    table: Table, glue_client: Any, path: TableIdentifier
) -> None:
    table.update_schema().update_column("id", doc="").commit()
    found = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    assert [column.get("Comment") for column in found["StorageDescriptor"]["Columns"]] == [None]


def test_partitions_and_the_order_of_a_table_change(
    catalog: Catalog, endpoint: EndpointConfig, path: TableIdentifier
) -> None:
    check_arrangements(catalog, path, table_location(endpoint, path))


def test_no_row_is_lost_when_a_table_is_compacted_beside_transactions(
    catalog: Catalog, endpoint: EndpointConfig, path: TableIdentifier
) -> None:
    check_compactions(catalog, path, table_location(endpoint, path))


def test_a_chain_lands_once_with_its_fence_where_glue_shows_it(
    catalog: Catalog, table: Table, glue_client: Any, path: TableIdentifier
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    finish(catalog, *chain)
    finish(catalog, *(replace(staged, is_recovered=True) for staged in chain))
    assert ids_of(catalog, path) == [1, 2, 3]
    landed = catalog.load_table(path)
    assert len(landed.snapshots()) == 1
    found = parameters(glue_client, path)
    assert found[fence.property_name(WRITER)] == fence.read_value(landed.properties, WRITER) == chain[-1].next
    assert found["metadata_location"] == landed.metadata_location
    assert found["previous_metadata_location"] == table.metadata_location


def test_the_documented_policy_allows_what_is_asked_of_glue_and_nothing_else(
    catalog: Catalog, endpoint: EndpointConfig, glue_proxy: FaultProxy, path: TableIdentifier
) -> None:
    fit(catalog, endpoint, path, ID)
    finish(catalog, *stage_chain(catalog, path, WRITER))
    assert not is_compacted_by_service(catalog.load_table(path))
    catalog.drop_table(path)
    [statement] = documented_statements("glue")
    assert {f"glue:{request.target.removeprefix('AWSGlue.')}" for request in glue_proxy.seen} == set(
        statement["Action"]
    )


def test_the_documented_actions_of_commands_are_what_they_ask_of_glue_besides(
    catalog: Catalog, endpoint: EndpointConfig, glue_proxy: FaultProxy, table: Table, path: TableIdentifier
) -> None:
    glue_proxy.seen.clear()
    [(found, _)] = find_own_tables(catalog, endpoint, path.namespace, OWNER.materialization)
    assert found == TableIdentifier.of(table)
    assert (path.namespace,) in catalog.list_namespaces()  # as a search for the files of dropped tables begins
    asked = {f"glue:{request.target.removeprefix('AWSGlue.')}" for request in glue_proxy.seen}
    [statement] = documented_statements("glue")
    assert asked - set(statement["Action"]) == documented_actions_of_commands("glue")


@pytest.mark.usefixtures("table")
def test_a_stale_process_is_refused(catalog: Catalog, glue_proxy: FaultProxy, path: TableIdentifier) -> None:
    """Its successor commits between its look at the table and its commit."""
    stale, successor = stage(catalog, path, WRITER, 1), stage(catalog, path, WRITER, 2)
    glue_proxy.inject(is_update, GENUINE, before=partial(finish, catalog, successor))
    with pytest.raises(FencedError):
        finish(catalog, stale)
    assert ids_of(catalog, path) == [2]


def test_another_writer_is_met_by_looking_again(
    catalog: Catalog, glue_proxy: FaultProxy, table: Table, path: TableIdentifier
) -> None:
    foreign = pa.table({"id": [100]}, schema=table.schema().as_arrow())
    glue_proxy.inject(is_update, GENUINE, before=lambda: catalog.load_table(path).append(foreign))
    finish(catalog, *stage_chain(catalog, path, WRITER))
    assert ids_of(catalog, path) == [1, 2, 3, 100]
    assert len(catalog.load_table(path).snapshots()) == 2


def test_a_commit_replaces_what_its_table_was_loaded_with_or_nothing(
    catalog: Catalog, table: Table, path: TableIdentifier
) -> None:
    """Glue itself compares versions, and the commit learns the table's only when it is sent."""
    catalog.load_table(path).append(pa.table({"id": [100]}, schema=table.schema().as_arrow()))
    with pytest.raises(CommitFailedException):
        catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    assert ids_of(catalog, path) == [100]


def test_the_fence_survives_what_another_engine_does_to_the_table(
    catalog: Catalog, table: Table, glue_client: Any, path: TableIdentifier
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    finish(catalog, *chain)
    foreign = pa.table({"id": [100]}, schema=table.schema().as_arrow())
    catalog.load_table(path).overwrite(foreign)
    with catalog.load_table(path).update_schema() as update:
        update.add_column("note", StringType())
    changed = catalog.load_table(path)
    changed.maintenance.expire_snapshots().by_ids(
        [snapshot.snapshot_id for snapshot in changed.snapshots()[:-1]]
    ).commit()
    finish(catalog, *(replace(staged, is_recovered=True) for staged in chain))
    assert ids_of(catalog, path) == [100]
    assert parameters(glue_client, path)[fence.property_name(WRITER)] == chain[-1].next


@pytest.mark.parametrize(
    "fault",
    [
        Fault(1, Answer.NONE),
        Fault(1, HTTPStatus.SERVICE_UNAVAILABLE),
        Fault(0, Answer.NONE),
        Fault(0, HTTPStatus.TOO_MANY_REQUESTS),
    ],
    ids=str,
)
@pytest.mark.usefixtures("table")
def test_an_update_that_the_client_repeats_lands_once(
    catalog: Catalog, glue_proxy: FaultProxy, path: TableIdentifier, fault: Fault
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    glue_proxy.inject(is_update, fault)
    finish(catalog, *chain)
    assert glue_proxy.fired == [fault]
    assert len([request for request in glue_proxy.seen if is_update(request)]) == 2
    assert ids_of(catalog, path) == [1, 2, 3]
    assert len(catalog.load_table(path).snapshots()) == 1


ANSWER_LOST: Final = Fault(1, HTTPStatus.SERVICE_UNAVAILABLE)  # then the client sends the request again


def make_expiring(catalog: Catalog, table: Table) -> set[str]:
    """Three snapshots, two of which have expired. Returns the manifest lists of these."""
    with table.transaction() as changes:
        changes.set_properties({MAX_AGE: "0"})
    finish(catalog, *stage_chain(catalog, TableIdentifier.of(table), WRITER))
    for number in (100, 101):
        catalog.load_table(table.name()).append(pa.table({"id": [number]}, schema=table.schema().as_arrow()))
    return {snapshot.manifest_list for snapshot in catalog.load_table(table.name()).snapshots()[:-1]}


@pytest.mark.parametrize("by_hand", [True, False], ids=["command", "session"])
def test_an_expiry_that_the_client_repeats_deletes_its_files(
    catalog: Catalog, glue_proxy: FaultProxy, table: Table, path: TableIdentifier, *, by_hand: bool
) -> None:
    expired = make_expiring(catalog, table)
    glue_proxy.inject(is_update, ANSWER_LOST)
    if by_hand:
        found = expire_all_snapshots(catalog, path, NEVER)
        assert (found.count, set(found.locations)) == (len(expired), expired)
    else:
        assert expire_snapshots(catalog, path) == len(expired)
        assert expired.isdisjoint(files_under(table.io, table.location()))
    assert len(catalog.load_table(path).snapshots()) == 1


def test_time_travel_shows_no_older_rows_in_the_place_of_expired_ones(
    catalog: Catalog, endpoint: EndpointConfig, path: TableIdentifier
) -> None:
    check_history_after_expiries(catalog, path, table_location(endpoint, path))


def test_a_reset_that_the_client_repeats_is_done(catalog: Catalog, glue_proxy: FaultProxy, table: Table) -> None:
    path = TableIdentifier.of(table)
    lost = stage(catalog, path, WRITER, 1)
    finish(catalog, stage(catalog, path, WRITER, 2))
    table = catalog.load_table(path)
    planned = plan_reset(table, [lost], Decision.SKIP)
    glue_proxy.inject(is_update, ANSWER_LOST)
    perform_reset(table, planned, "a test")
    assert fence.read_value(catalog.load_table(path).properties, WRITER) == planned.value


def test_a_repeated_commit_is_found_though_others_have_followed_it(
    catalog: Catalog, glue_proxy: FaultProxy, table: Table, path: TableIdentifier
) -> None:
    """They come before the client's second request."""

    def commit_twice() -> None:
        for number in (100, 101):
            catalog.load_table(path).append(pa.table({"id": [number]}, schema=table.schema().as_arrow()))

    glue_proxy.inject(is_update, ANSWER_LOST)
    glue_proxy.inject(is_update, GENUINE, before=commit_twice)
    catalog.commit_table(table, (), (SetPropertiesUpdate(updates={"a": "b"}),))
    assert catalog.load_table(path).properties["a"] == "b"
    assert ids_of(catalog, path) == [100, 101]


@pytest.mark.usefixtures("table")
def test_a_commit_that_glue_forbids_is_not_tried_again(
    catalog: Catalog, glue_proxy: FaultProxy, path: TableIdentifier
) -> None:
    chain = stage_chain(catalog, path, WRITER)
    glue_proxy.inject(is_update, Fault(0, HTTPStatus.FORBIDDEN))
    with pytest.raises(UserError, match=r"orders: the catalog refuses the commit.*stay staged"):
        finish(catalog, *chain)
    finish(catalog, *chain)
    assert ids_of(catalog, path) == [1, 2, 3]


@pytest.mark.usefixtures("table")
def test_a_table_that_is_dropped_between_the_look_and_the_update_is_missed_by_name(
    catalog: Catalog, glue_proxy: FaultProxy, path: TableIdentifier
) -> None:
    staged = stage(catalog, path, WRITER, 1)
    glue_proxy.inject(is_update, GENUINE, before=lambda: catalog.drop_table(path))
    with pytest.raises(UserError, match="orders is gone"):
        finish(catalog, staged)


@pytest.mark.usefixtures("table")
def test_keys_that_the_object_store_does_not_accept_are_named(
    catalog: Catalog, s3_server: S3Server, bucket: str, path: TableIdentifier
) -> None:
    staged = stage(catalog, path, WRITER, 1)
    config = on_s3(s3_server, bucket, path[0], glue()) | {"credentials": aws_keys(s3_server, "wrong")}
    wrong = parse(config, [])[0]
    refusal = (
        r"the metadata of table .*orders: the object store (forbids this|does not accept the credentials).*/credentials"
    )
    with open_catalog(wrong) as locked_out:
        for use in (partial(load_table, locked_out, path), partial(finish, locked_out, staged)):
            with pytest.raises(UserError, match=refusal), translate_errors(wrong):
                use()
        with pytest.raises(UserError, match=refusal), translate_errors(wrong):
            fit(locked_out, wrong, TableIdentifier(path[0], "new_orders"), ID)


def test_the_stand_in_is_as_strict_as_glue(glue_client: Any, table: Table, path: TableIdentifier) -> None:
    found = glue_client.get_table(DatabaseName=path[0], Name=path[1])["Table"]
    update = partial(glue_client.update_table, DatabaseName=path[0])
    version = found["VersionId"]
    update(TableInput={"Name": path[1], "Parameters": found["Parameters"]}, VersionId=version)
    with pytest.raises(ClientError, match="ConcurrentModificationException"):
        update(TableInput={"Name": path[1]}, VersionId=version)
    for parameter in ("k" * 256, "two\nlines"):
        with pytest.raises(ClientError, match="ValidationException"):
            update(TableInput={"Name": path[1], "Parameters": {parameter: ""}})
    assert parameters(glue_client, path)["metadata_location"] == table.metadata_location
