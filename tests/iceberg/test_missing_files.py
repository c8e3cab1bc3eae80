"""Staged files that another engine has deleted never become part of a table, and land once when they are put back."""

import json
import re
from collections.abc import Iterator, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, Final

import msgspec
import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.io.pyarrow import PyArrowFile

from connector.cli.commands.fence_command import FenceArguments, reset, show
from connector.cli.flow.flow_files import ConfigFile
from connector.host.errors import RetryableError, UserError
from connector.host.logs import format_bytes
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits import commit, missing_files
from connector.iceberg.commits.commit_outcomes import Failed
from connector.iceberg.commits.reset import Decision
from connector.model import state
from connector.model.binding import RowSettings
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.session import recovery
from connector.session.backlog import Limit
from connector.session.committer import Committer
from protocol.flow import FieldSelection, Materialization, MaterializationBinding
from support.rows.staged_files import listed, place_of, removed, stage
from support.snapshots import check_text
from support.tables.local_tables import foreign_table, ids_of
from support.tables.outcomes import try_commits

ORDERS, ITEMS = ("shop", "orders"), ("shop", "items")
WHOLE, LEFT = "00000000-ffffffff", "00000000-7fffffff"
TASK: Final = Materialization(
    name="acme/task",
    bindings=tuple(
        MaterializationBinding(resource_path=path, state_key=f"{path[1]}.v1", field_selection=FieldSelection(("id",)))
        for path in (ORDERS, ITEMS)
    ),
)


@pytest.fixture(autouse=True)
def one_attempt(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(commit, "RETRY_FOR", 0.0)


@pytest.fixture
def catalog(catalog: Catalog) -> Catalog:
    for path in ORDERS, ITEMS:
        foreign_table(catalog, path)
    return catalog


def writer(path: tuple[str, str] = ORDERS) -> WriterId:
    return WriterId(TASK.name, f"{path[1]}.v1", WHOLE)


def stage_old(
    catalog: Catalog, *ids: int, path: TableIdentifier = TableIdentifier(*ORDERS), **about: Any
) -> StagedCommit:
    """What an earlier session has staged, as the state names it."""
    return replace(stage(catalog, path, writer(path), *ids, **about), is_recovered=True)


def new_committer(catalog: Catalog) -> Committer:
    return Committer(partial(commit.try_commits, catalog), Limit(100, 1 << 40))


def start(catalog: Catalog, *staged: StagedCommit, key_range: str = WHOLE) -> list[StagedCommit]:
    """What the start of a session does with the state; what has landed."""

    def bind() -> Sequence[BoundTable]:
        return bind_all(catalog, TASK, key_range, [RowSettings(), RowSettings()])

    return list(recovery.recover(staged, new_committer(catalog), bind).commits)


def refused(catalog: Catalog, *staged: StagedCommit, key_range: str = WHOLE) -> str:
    with pytest.raises(UserError) as error:
        start(catalog, *staged, key_range=key_range)
    return str(error.value)


# The start of a session


def test_a_start_is_refused_while_staged_files_are_gone_and_lands_their_rows_once_when_they_are_back(
    catalog: Catalog,
) -> None:
    orders, items = stage_old(catalog, 1, 2), stage_old(catalog, 3, path=TableIdentifier(*ITEMS))
    [location] = orders.locations
    with removed(location):
        check_text("commit_errors", "a staged file that is gone", refused(catalog, orders, items), {location: "FILE"})
        assert ids_of(catalog, ORDERS) == []
        assert ids_of(catalog, ITEMS) == [3]
    for _ in range(2):
        assert set(start(catalog, orders, items)) == {orders, items}
        assert (ids_of(catalog, ORDERS), ids_of(catalog, ITEMS)) == ([1, 2], [3])


def test_a_few_of_many_files_that_are_gone_are_named(catalog: Catalog) -> None:
    chain = [stage_old(catalog, 0)]
    for number in range(1, 6):
        chain.append(stage_old(catalog, number, prev=chain[-1].next))
    locations = [location for staged in chain for location in staged.locations]
    with removed(*locations[1:]):
        said = refused(catalog, *chain)
        check_text("commit_errors", "many staged files that are gone", re.sub(r"file:\S+parquet", "FILE", said))
        assert [location in said for location in locations] == [False, True, True, True, False, False]
        assert ids_of(catalog, ORDERS) == []
    start(catalog, *chain)
    assert ids_of(catalog, ORDERS) == [0, 1, 2, 3, 4, 5]


@pytest.mark.parametrize("has_lost_its_list", [True, False])
def test_files_that_a_list_names_are_looked_for_and_so_is_the_list(catalog: Catalog, has_lost_its_list: bool) -> None:
    plain = stage_old(catalog, 1)
    staged = listed(catalog.load_table(ORDERS), plain)
    [gone] = staged.locations if has_lost_its_list else plain.locations
    with removed(gone):
        assert f"1 staged file(s) are gone: {gone}." in refused(catalog, staged)
        assert ids_of(catalog, ORDERS) == []
    start(catalog, staged)
    assert ids_of(catalog, ORDERS) == [1]


def test_a_session_of_another_key_range_is_refused_too(catalog: Catalog) -> None:
    staged = stage_old(catalog, 1)
    with removed(*staged.locations):
        assert "are gone" in refused(catalog, staged, key_range=LEFT)


def test_what_was_staged_for_a_binding_that_is_gone_waits_and_is_told(
    catalog: Catalog, caplog: pytest.LogCaptureFixture
) -> None:
    path = TableIdentifier("shop", "returns")
    foreign_table(catalog, path)
    staged = stage_old(catalog, 1, path=path)
    with removed(*staged.locations):
        assert start(catalog, staged) == []
    size = format_bytes(staged.size)
    assert f"table shop.returns: 1 transaction(s), 1 rows, {size} staged and waiting: " in caplog.text
    assert "are gone" in caplog.text


def test_a_store_that_is_down_is_not_taken_for_files_that_are_gone(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def fail(_: object) -> bool:
        raise OSError("AWS Error NETWORK_CONNECTION during HeadObject operation: curlCode: 7")

    staged = stage_old(catalog, 1)
    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFile, "exists", fail)
        with pytest.raises(RetryableError, match="the object store cannot be reached"):
            commit.commit_all_or_raise(catalog, [staged])
    start(catalog, staged)
    assert ids_of(catalog, ORDERS) == [1]


def test_files_are_looked_for_in_their_directory_if_the_store_does_not_tell_of_each(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(_: object) -> bool:
        raise PermissionError("ACCESS_DENIED during HeadObject operation")

    first = stage_old(catalog, 1)
    second = stage_old(catalog, 2, prev=first.next)
    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFile, "exists", forbid)
        with removed(*first.locations):
            assert "1 staged file(s) are gone" in refused(catalog, first, second)
        start(catalog, first, second)
    assert ids_of(catalog, ORDERS) == [1, 2]


def test_a_store_that_does_not_let_the_task_look_keeps_no_session_from_opening(
    catalog: Catalog, monkeypatch: pytest.MonkeyPatch
) -> None:
    def forbid(*_: object) -> Any:
        raise PermissionError("ACCESS_DENIED during HeadObject operation")

    staged = stage_old(catalog, 1)
    with monkeypatch.context() as patch:
        patch.setattr(PyArrowFile, "exists", forbid)
        patch.setattr(missing_files, "files_under", forbid)
        assert start(catalog, staged) == []
    assert start(catalog, staged) == [staged]
    assert ids_of(catalog, ORDERS) == [1]


# When files are looked for


@pytest.fixture
def looks() -> Iterator[list[str]]:
    """The locations of data files that are looked for from now on, but for those that are written."""
    exists, looks = PyArrowFile.exists, list[str]()

    def noting(file: PyArrowFile) -> bool:
        looks.append(file.location)
        return exists(file)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(PyArrowFile, "exists", noting)
        yield looks


def test_the_files_of_a_transaction_that_was_staged_just_now_are_not_looked_for(
    catalog: Catalog, looks: list[str]
) -> None:
    staged = stage(catalog, TableIdentifier(*ORDERS), writer(), 1)
    looks.clear()
    commit.commit_all_or_raise(catalog, [staged])
    assert not set(staged.locations).intersection(looks)


def test_files_are_looked_for_once_however_many_attempts_it_takes(
    catalog: Catalog, looks: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    staged, land = stage_old(catalog, 1), commit.commit_snapshot
    conflicts = iter([ValueError("somebody else was faster")] * 2)

    def conflicting(*about: Any) -> Any:
        for error in conflicts:
            raise error
        return land(*about)

    monkeypatch.setattr(commit, "RETRY_FOR", 5.0)
    monkeypatch.setattr(commit, "commit_snapshot", conflicting)
    looks.clear()
    commit.commit_all_or_raise(catalog, [staged])
    assert [location for location in looks if location.endswith(".parquet")] == list(staged.locations)


def test_files_of_a_table_that_has_refused_commits_for_days_are_looked_for(catalog: Catalog) -> None:
    """They are as old as those of a task that was stopped."""
    staged = stage(catalog, TableIdentifier(*ORDERS), writer(), 1)
    with removed(*staged.locations):
        [failed] = try_commits(catalog, [staged], without_retry={staged.chain_id})
        assert isinstance(failed, Failed)
        assert "are gone" in str(failed.error)
        assert ids_of(catalog, ORDERS) == []
    try_commits(catalog, [staged], without_retry={staged.chain_id})
    assert ids_of(catalog, ORDERS) == [1]


# The ways out


def task_of(directory: Path, *staged: StagedCommit) -> FenceArguments:
    config, of_task = directory / "config.json", directory / "state.json"
    config.write_text(
        json.dumps({"namespace": "shop", "catalog": {"catalog_type": "Local", "warehouse": f"{directory}"}})
    )
    of_task.write_text(json.dumps(state.encode_added(staged)))
    return FenceArguments(ConfigFile(str(config)), "shop.orders", TASK.name, str(of_task))


def skip(directory: Path, *staged: StagedCommit) -> str:
    about = task_of(directory, *staged)
    return reset(about, ("orders.v1", WHOLE), Decision.SKIP, "cleaned by a job", is_confirmed=True)


def verdicts(directory: Path, *staged: StagedCommit) -> list[str]:
    return [one["verdict"] for one in json.loads(show(task_of(directory, *staged), as_json=True))["staged"]]


def test_a_reset_gives_up_the_rows_whose_files_are_gone_and_no_later_ones(catalog: Catalog, tmp_path: Path) -> None:
    landed = stage_old(catalog, 1)
    start(catalog, landed)
    lost = stage_old(catalog, 2, prev=landed.next)
    kept = stage_old(catalog, 3, prev=lost.next)
    chain = landed, lost, kept
    assert verdicts(tmp_path, *chain) == ["committed", "will be committed", "will be committed"]
    place_of(lost.locations[0]).unlink()
    assert verdicts(tmp_path, *chain) == [
        "committed",
        "cannot be committed: staged files are gone",
        "will be committed",
    ]
    assert "1 row(s) of 1 staged transaction(s) are in no snapshot" in skip(tmp_path, *chain)
    assert set(start(catalog, *chain)) == {*chain}
    assert ids_of(catalog, ORDERS) == [1, 3]
    commit.commit_all_or_raise(catalog, [stage(catalog, TableIdentifier(*ORDERS), writer(), 4)])
    assert ids_of(catalog, ORDERS) == [1, 3, 4]


def test_a_file_that_is_gone_stops_all_transactions_before_it(catalog: Catalog, tmp_path: Path) -> None:
    chain = [stage_old(catalog, 1)]
    for number in (2, 3, 4):
        chain.append(stage_old(catalog, number, prev=chain[-1].next))
    for lost in (chain[0], chain[2]):
        place_of(lost.locations[0]).unlink()
    assert verdicts(tmp_path, *chain) == [
        *["cannot be committed: staged files are gone"] * 3,
        "will be committed",
    ]


def test_a_reset_gives_up_rows_whose_list_of_files_is_gone(catalog: Catalog, tmp_path: Path) -> None:
    staged = listed(catalog.load_table(ORDERS), stage_old(catalog, 1))
    place_of(staged.locations[0]).unlink()
    assert "1 row(s) of 1 staged transaction(s) are in no snapshot" in skip(tmp_path, staged)
    assert start(catalog, staged) == [staged]
    assert ids_of(catalog, ORDERS) == []


def test_a_reset_does_not_call_rows_lost_whose_list_was_deleted_after_they_had_landed(
    catalog: Catalog, tmp_path: Path
) -> None:
    """The state was restored from an older copy: its lists of files are gone since, as they should be."""
    old = listed(catalog.load_table(ORDERS), stage_old(catalog, 1))
    start(catalog, old)
    commit.commit_all_or_raise(catalog, [stage(catalog, TableIdentifier(*ORDERS), writer(), 2)])
    place_of(old.locations[0]).unlink()
    assert verdicts(tmp_path, old) == ["fenced"]
    said = skip(tmp_path, old)
    unknown = "1 row(s) of 1 staged transaction(s) may be in the table or not: the list of their files is gone,"
    assert unknown in said
    assert "are in no snapshot" not in said
    assert start(catalog, old) == [old]
    assert ids_of(catalog, ORDERS) == [1, 2]


def test_a_reset_cannot_add_files_that_are_gone(catalog: Catalog, tmp_path: Path) -> None:
    staged = stage_old(catalog, 1)
    place_of(staged.locations[0]).unlink()
    with pytest.raises(UserError, match="has been deleted: it cannot be added"):
        reset(task_of(tmp_path, staged), ("orders.v1", WHOLE), Decision.ADD, "", is_confirmed=True)


def test_a_reset_gives_up_rows_whose_partition_spec_is_gone_and_no_later_ones(catalog: Catalog, tmp_path: Path) -> None:
    """The error of the commit names this way out."""
    first = stage_old(catalog, 1)
    unplaced = replace(stage_old(catalog, 2, prev=first.next), spec_id=7)
    kept = stage_old(catalog, 3, prev=unplaced.next)
    chain = first, unplaced, kept
    with pytest.raises(UserError, match=r"another engine has removed.* fence reset --staged skip"):
        start(catalog, *chain)
    is_gone = "cannot be committed: its partition spec is gone"
    assert verdicts(tmp_path, *chain) == [is_gone, is_gone, "will be committed"]
    with pytest.raises(UserError) as error:
        reset(task_of(tmp_path, *chain), ("orders.v1", WHOLE), Decision.ADD, "", is_confirmed=True)
    check_text("commit_errors", "fence reset: the partition spec of staged files is gone", str(error.value))
    assert "2 row(s) of 2 staged transaction(s) are in no snapshot" in skip(tmp_path, *chain)
    assert set(start(catalog, *chain)) == {*chain}
    assert ids_of(catalog, ORDERS) == [3]


def test_a_reset_gives_up_rows_whose_partitions_do_not_fit_the_table(catalog: Catalog, tmp_path: Path) -> None:
    staged = stage_old(catalog, 1)
    assert isinstance(staged.files, tuple)
    [file] = staged.files
    other = listed(
        catalog.load_table(ORDERS), replace(staged, files=(msgspec.structs.replace(file, partition=(b"1",)),))
    )
    with pytest.raises(UserError, match="does not fit the table's partition spec 0"):
        start(catalog, other)
    assert "1 row(s) of 1 staged transaction(s) are in no snapshot" in skip(tmp_path, other)
    assert start(catalog, other) == [other]
    assert ids_of(catalog, ORDERS) == []
