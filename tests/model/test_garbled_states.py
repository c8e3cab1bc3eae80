"""A state that this connector did not write is refused with a sentence that names the place, and is left as it is."""

import json
from collections.abc import Callable
from copy import deepcopy
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

import pytest
from hypothesis import given
from hypothesis import strategies as st

from connector.cli.commands.fence_command import FenceArguments, reset, show
from connector.cli.commands.plan_command import plan_recorded
from connector.cli.flow.flow_files import ConfigFile
from connector.host.errors import UserError
from connector.iceberg.commits.reset import Decision
from connector.model.state import encode_added
from connector.model.state_reader import read_state
from connector.rpc.apply import apply
from protocol import request
from support.bindings import ID, MATERIALIZATION, PATH, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.rows.staged_files import stage
from support.rows.staged_rows import WRITER
from support.sessions.runtime import Runtime
from support.snapshots import check_text
from support.tables.local_tables import files_of, ids_of, local_catalog

KEY: Final = "shop%2Forders.v0"
RANGE, LEFT, RIGHT = "00000000-ffffffff", "00000000-7fffffff", "80000000-ffffffff"
UUID: Final = "0b9f7a7e-57a8-4a53-9d25-5c1c40a4f7a6"
UPDATES: Final = {"parts": [{"column_id": 1, "pointer": "/id"}], "document_id": 2}
A, B, C, D, E = (digit * 32 for digit in "abcde")


def entry(prev: str = "", **others: Any) -> Any:
    """As this image writes it, but for what is given; None leaves a field out."""
    written = {
        "version": 6,
        "table": ["shop", "orders"],
        "tableUuid": UUID,
        "specId": 0,
        "schemaId": 2,
        "files": [data_file()],
        "checkpoint": "4f53cda18c2baa0c",
        "prev": prev,
    }
    return {name: value for name, value in (written | others).items() if value is not None}


def data_file(**others: Any) -> Any:
    columns = [[1, 40, 3, 0, "AA==", "/w=="], [2, 31, 3, None, None, None]]
    written = {"path": "file:///w/a.parquet", "rows": 3, "size": 812, "splits": [4, 400], "columns": columns}
    return {name: value for name, value in (written | others).items() if value is not None}


def statistics(*first: Any) -> Any:
    return [data_file(columns=[[*first, *[1, 40, 3, 0, "AA==", "/w=="][len(first) :]]])]


def kept(entries: Any, key_range: str = RANGE) -> Any:
    return {"bindingStates": {KEY: {key_range: entries}}}


def finished(by_table: Any, key_range: str = RANGE) -> Any:
    """Beside an entry that can be read."""
    return {**kept({A: entry()}), "finished": {KEY: {key_range: by_table}}}


def with_entry(**others: Any) -> Any:
    """An entry that cannot be read, beside one that can."""
    return kept({A: entry(), B: entry(A, **others)})


HUGE: Final = 1 << 80


def null(name: str) -> Any:
    return kept({A: entry(), B: {**entry(A), name: None}})


STATE: Final = "the task's state"
OF_KEY: Final = f"{STATE}, state key '{KEY}'"
OF_RANGE: Final = f"{OF_KEY}, key range '{RANGE}'"
OF_ENTRY: Final = f"{OF_RANGE}, entry '{B}'"
FINISHED: Final = f"{STATE}, finished commits, state key '{KEY}'"
FINISHED_IN: Final = f"{FINISHED}, key range '{RANGE}', table '{UUID}'"

GARBLED: Final[dict[str, tuple[str, Any]]] = {
    # not what is expected, at each level
    "a number": (STATE, 5),
    "zero": (STATE, 0),
    "a text": (STATE, "state"),
    "no text": (STATE, ""),
    "a list": (STATE, []),
    "false": (STATE, False),
    "binding states that are a number": (STATE, {"bindingStates": 5}),
    "binding states that are a list": (STATE, {"bindingStates": []}),
    "ranges that are a text": (OF_KEY, {"bindingStates": {KEY: "staged"}}),
    "ranges that are a list": (OF_KEY, {"bindingStates": {KEY: [RANGE]}}),
    "ranges that are an empty list": (OF_KEY, {"bindingStates": {KEY: []}}),
    "entries that are a list": (OF_RANGE, kept([B])),
    "entries that are a number": (OF_RANGE, kept(7)),
    "entries that are false": (OF_RANGE, kept(False)),
    "an entry that is a text": (OF_ENTRY, kept({B: "staged"})),
    "an entry that is a list": (OF_ENTRY, kept({B: []})),
    "an entry that is empty": (OF_ENTRY, kept({B: {}})),
    # names
    "a range that is none": (f"{OF_KEY}, key range 'abc'", kept({A: entry()}, "abc")),
    "a range without a name": (f"{OF_KEY}, key range ''", kept({A: entry()}, "")),
    "a range of short numbers": (f"{OF_KEY}, key range '0-f'", kept({A: entry()}, "0-f")),
    "a range in capitals": (f"{OF_KEY}, key range '00000000-FFFFFFFF'", kept({A: entry()}, "00000000-FFFFFFFF")),
    "a range of three": (f"{OF_KEY}, key range '{RANGE}-ffffffff'", kept({A: entry()}, f"{RANGE}-ffffffff")),
    "a range with a line break": (f"{OF_KEY}, key range '{RANGE}\\n'", kept({A: entry()}, f"{RANGE}\n")),
    "a range that ends first": (f"{OF_KEY}, key range '80000000-7fffffff'", kept({}, "80000000-7fffffff")),
    "a range with a very long name": (f"{OF_KEY}, key range '{'z' * 100}…'", kept({}, "z" * 5000)),
    "a fence value that is none": (f"{OF_RANGE}, entry 'zz'", kept({"zz": entry()})),
    "a null of no fence value": (f"{OF_RANGE}, entry 'zz'", kept({"zz": None})),
    "an empty fence value": (f"{OF_RANGE}, entry ''", kept({"": entry()})),
    "a closed fence value as an entry": (f"{OF_RANGE}, entry 'closed:{A}'", kept({f"closed:{A}": entry()})),
    "a fence value in capitals": (f"{OF_RANGE}, entry '{'A' * 32}'", kept({"A" * 32: entry()})),
    "a fence value of 33 digits": (f"{OF_RANGE}, entry '{'a' * 33}'", kept({"a" * 33: entry()})),
    # the version and fields that are unknown
    "a newer version": (OF_ENTRY, with_entry(version=7)),
    "a much newer version": (OF_ENTRY, with_entry(version=HUGE)),
    "a newer version of another shape": (OF_ENTRY, kept({A: entry(), B: {"version": 9, "rows": "many"}})),
    "version 1, which was not written": (OF_ENTRY, with_entry(version=1)),
    "version 0": (OF_ENTRY, with_entry(version=0)),
    "a negative version": (OF_ENTRY, with_entry(version=-2)),
    "a version that is a text": (OF_ENTRY, with_entry(version="3")),
    "a version that is a fraction": (OF_ENTRY, with_entry(version=2.5)),
    "a version that is true": (OF_ENTRY, with_entry(version=True)),
    "a version that is null": (OF_ENTRY, null("version")),
    "a field that is unknown": (OF_ENTRY, with_entry(positionDeletes=[])),
    "a field of a file that is unknown": (OF_ENTRY, with_entry(files=[data_file(content=1)])),
    "statistics that are unknown": (OF_ENTRY, with_entry(files=statistics(1, 40, 3, 0, "AA==", "/w==", 5))),
    "a field of a list of files that is unknown": (
        OF_ENTRY,
        with_entry(files=None, fileList=["file:///w/a-files.json", 2, 6, 1624, 1]),
    ),
    "a field that is unknown since version 2": (OF_ENTRY, with_entry(path=["shop", "orders"])),
    "a field that is unknown before version 2": (OF_ENTRY, with_entry(version=None)),
    # the table
    "no table": (OF_ENTRY, with_entry(table=None)),
    "a table that is null": (OF_ENTRY, null("table")),
    "a table that is a text": (OF_ENTRY, with_entry(table="shop.orders")),
    "a table of one name": (OF_ENTRY, with_entry(table=["shop"])),
    "a table of three names": (OF_ENTRY, with_entry(table=["lake", "shop", "orders"])),
    "a table with an empty name": (OF_ENTRY, with_entry(table=["shop", ""])),
    "a table with a number": (OF_ENTRY, with_entry(table=["shop", 5])),
    "no uuid": (OF_ENTRY, with_entry(tableUuid=None)),
    "a uuid that is none": (OF_ENTRY, with_entry(tableUuid="a-uuid")),
    "a uuid with a line break": (OF_ENTRY, with_entry(tableUuid=f"{UUID}\n")),
    "a uuid that is a number": (OF_ENTRY, with_entry(tableUuid=5)),
    "no spec": (OF_ENTRY, with_entry(specId=None)),
    "a spec that is a text": (OF_ENTRY, with_entry(specId="0")),
    "a spec that is negative": (OF_ENTRY, with_entry(specId=-1)),
    "a spec that is huge": (OF_ENTRY, with_entry(specId=HUGE)),
    "a schema that is negative": (OF_ENTRY, with_entry(schemaId=-1)),
    "a schema that is beyond Iceberg's int": (OF_ENTRY, with_entry(schemaId=1 << 31)),
    "a schema that is true": (OF_ENTRY, with_entry(schemaId=True)),
    "a checkpoint that is a number": (OF_ENTRY, with_entry(checkpoint=5)),
    # the located rows
    "located rows, which are unknown before version 3": (
        OF_ENTRY,
        with_entry(version=2, located=["file:///w/a", 2, None]),
    ),
    "a sort order, which is unknown before version 4": (
        OF_ENTRY,
        with_entry(version=3, sortOrderId=1),
    ),
    "a column of publication times, which is unknown before version 5": (OF_ENTRY, with_entry(version=4, published=2)),
    "key columns, which are unknown before version 6": (OF_ENTRY, with_entry(version=5, updates=UPDATES)),
    "key columns of an unknown form": (OF_ENTRY, with_entry(updates={**UPDATES, "keys": []})),
    "a key column without an id": (OF_ENTRY, with_entry(updates={**UPDATES, "parts": [{"pointer": "/id"}]})),
    "neither files nor located rows": (OF_ENTRY, with_entry(files=None, located=[None, 0, 7])),
    "a column of publication times that is negative": (OF_ENTRY, with_entry(published=-2)),
    "offsets that are an object": (OF_ENTRY, with_entry(offsets={"acmeCo/orders/pivot=00": 5})),
    "a sort order that is negative": (OF_ENTRY, with_entry(sortOrderId=-1)),
    "a partition that is a text": (OF_ENTRY, with_entry(files=[data_file(partition="AA==")])),
    "a partition with a number": (OF_ENTRY, with_entry(files=[data_file(partition=[5])])),
    "located rows without a location": (OF_ENTRY, with_entry(located=["", 2, None])),
    "located rows of a negative number": (OF_ENTRY, with_entry(located=["file:///w/a", -2, None])),
    "located rows of a snapshot that is a text": (OF_ENTRY, with_entry(located=["file:///w/a", 2, "7"])),
    "located rows that are cut short": (OF_ENTRY, with_entry(located=["file:///w/a", 2])),
    # the files
    "no files": (OF_ENTRY, with_entry(files=None)),
    "an empty list of files": (OF_ENTRY, with_entry(files=[])),
    "files that are null": (OF_ENTRY, null("files")),
    "files that are an object": (OF_ENTRY, with_entry(files={"0": data_file()})),
    "files and a list of files": (OF_ENTRY, with_entry(fileList=["file:///w/a-files.json", 2, 6, 1624])),
    "a list of files without a location": (OF_ENTRY, with_entry(files=None, fileList=["", 2, 6, 1624])),
    "a list of files with negative rows": (OF_ENTRY, with_entry(files=None, fileList=["file:///w/a", 2, -6, 1624])),
    "a list of files that is cut short": (OF_ENTRY, with_entry(files=None, fileList=["file:///w/a", 2])),
    "a list of files that is a text": (OF_ENTRY, with_entry(files=None, fileList="file:///w/a")),
    "a file that is a text": (OF_ENTRY, with_entry(files=["file:///w/a.parquet"])),
    "a file that is null": (OF_ENTRY, with_entry(files=[None])),
    "a file without a path": (OF_ENTRY, with_entry(files=[data_file(path=None)])),
    "a file with an empty path": (OF_ENTRY, with_entry(files=[data_file(path="")])),
    "a file with a number as its path": (OF_ENTRY, with_entry(files=[data_file(path=5)])),
    "a file without rows": (OF_ENTRY, with_entry(files=[data_file(rows=None)])),
    "a file with negative rows": (OF_ENTRY, with_entry(files=[data_file(rows=-3)])),
    "a file with huge rows": (OF_ENTRY, with_entry(files=[data_file(rows=HUGE)])),
    "a file with half a row": (OF_ENTRY, with_entry(files=[data_file(rows=0.5)])),
    "a file with a negative size": (OF_ENTRY, with_entry(files=[data_file(size=-1)])),
    "a file with a negative split": (OF_ENTRY, with_entry(files=[data_file(splits=[-4])])),
    "a file with splits that are a number": (OF_ENTRY, with_entry(files=[data_file(splits=4)])),
    "statistics that are an object": (OF_ENTRY, with_entry(files=[data_file(columns=[{"field_id": 1}])])),
    "statistics that are cut short": (OF_ENTRY, with_entry(files=[data_file(columns=[[1, 40]])])),
    "statistics of a negative column": (OF_ENTRY, with_entry(files=statistics(-1))),
    "statistics with a negative size": (OF_ENTRY, with_entry(files=statistics(1, -40))),
    "statistics with negative nulls": (OF_ENTRY, with_entry(files=statistics(1, 40, 3, -1))),
    "statistics with a bound that is no base64": (OF_ENTRY, with_entry(files=statistics(1, 40, 3, 0, "no base64"))),
    # the chain
    "a prev that is none": (OF_ENTRY, kept({B: entry("zz")})),
    "a prev that is null": (OF_ENTRY, null("prev")),
    "a prev that is a number": (OF_ENTRY, kept({B: entry(prev=5)})),  # type: ignore[arg-type]
    "a prev with a line break": (OF_ENTRY, kept({B: entry(f"{A}\n")})),
    "a prev that was closed from none": (OF_ENTRY, kept({B: entry("closed:")})),
    "a prev that was closed twice": (OF_ENTRY, kept({B: entry(f"closed:closed:{A}")})),
    "a prev that was reset to nonsense": (OF_ENTRY, kept({B: entry(f"closed:zz:{A}")})),
    "a fork": (OF_RANGE, kept({A: entry(), B: entry(A), C: entry(A)})),
    "a fork at a closed value": (OF_RANGE, kept({A: entry(), B: entry(A), C: entry(f"closed:{A}")})),
    "a fork at none": (OF_RANGE, kept({A: entry(), B: entry()})),
    "a gap": (OF_RANGE, kept({A: entry(), B: entry(C)})),
    "a cycle": (OF_RANGE, kept({A: entry(B), B: entry(A)})),
    "an entry that follows itself": (OF_RANGE, kept({A: entry(A)})),
    "a cycle beside a chain": (OF_RANGE, kept({A: entry(), B: entry(A), C: entry(D), D: entry(C)})),
    # the finished commits
    "finished commits that are a list": (STATE, {"finished": [A]}),
    "finished commits of a key that are null": (FINISHED, {"finished": {KEY: None}}),
    "finished commits of a range that are a text": (f"{FINISHED}, key range '{RANGE}'", finished(A)),
    "finished commits of a range that is none": (f"{FINISHED}, key range 'abc'", finished({UUID: A}, "abc")),
    "a finished commit without a fence value": (FINISHED_IN, finished({UUID: ""})),
    "a finished commit with a closed fence value": (FINISHED_IN, finished({UUID: f"closed:{A}"})),
    "a finished commit with a number": (FINISHED_IN, finished({UUID: 5})),
    "a finished commit of no table": (f"{FINISHED}, key range '{RANGE}', table 'a-uuid'", finished({"a-uuid": A})),
    "a finished commit of a uuid with a line break": (
        f"{FINISHED}, key range '{RANGE}', table '{UUID}\\n'",
        finished({f"{UUID}\n": A}),
    ),
    "a finished commit with a value of 33 digits": (FINISHED_IN, finished({UUID: "a" * 33})),
}
EVERY_SENTENCE: Final = [
    "a number",
    "a finished commit without a fence value",
    "ranges that are a text",
    "a range that is none",
    "a fence value that is none",
    "a newer version",
    "a field that is unknown",
    "a uuid that is none",
    "files and a list of files",
    "a fork",
    "a gap",
    "a cycle",
]


def refusal(state: Any) -> str:
    with pytest.raises(UserError) as error:
        read_state("acme/orders", state)
    return str(error.value)


@pytest.mark.parametrize("name", EVERY_SENTENCE)
def test_the_sentences(name: str) -> None:
    check_text("state_errors", name, refusal(GARBLED[name][1]))


@pytest.mark.parametrize("name", GARBLED)
def test_a_garbled_state_is_refused_and_the_place_is_named(name: str) -> None:
    place, state = GARBLED[name]
    before = deepcopy(state)
    text = refusal(state)
    assert text.startswith((f"{place}: ", f"{place}, entry '"))
    assert "Nothing was committed, and the state was not changed." in text
    assert ("newer" in name or "unknown" in name) == ("Run the task with the newer image." in text)
    assert len(text) < 600
    assert state == before


def test_one_garbled_entry_spoils_the_whole_state() -> None:
    """Whichever shard's, table's or task's it is: what lands would otherwise depend on who looks."""
    good = {LEFT: {A: entry()}, RIGHT: {C: entry()}}
    assert len(read_state("acme/orders", {"bindingStates": {"other": {RANGE: {B: entry()}}, KEY: good}})) == 3
    spoils: list[Any] = [{LEFT: {A: entry(), B: entry()}}, {RIGHT: {"zz": entry()}}, {"x": {}}]
    for place in spoils:
        refusal({"bindingStates": {"other": {RANGE: {B: entry()}}, KEY: good | place}})


@pytest.mark.parametrize(
    "prev",
    ["", E, f"closed:{E}", f"closed:0a1b2c3d:{E}", "closed:0a1b2c3d:"],
    ids=["none", "open", "closed", "reset", "0"],
)
def test_every_value_that_a_table_may_record_can_be_followed(prev: str) -> None:
    chain = {A: entry(prev), B: entry(A), C: entry(f"closed:{B}")}
    assert [commit.next for commit in read_state("acme/orders", kept(chain))] == [A, B, C]


@pytest.mark.parametrize(
    "state",
    [
        None,
        {},
        {"bindingStates": None},
        {"bindingStates": {}},
        {"bindingStates": {KEY: None}},
        {"bindingStates": {KEY: {}}},
        kept({}),
        kept({A: None}),
        kept(None),
        {"somebody": "else's", "bindingStates": {KEY: {"fileKeys": ["s3://lake/1"], "currentCheckpoint": "4567"}}},
    ],
)
def test_a_state_that_names_nothing_of_ours_is_none(state: Any) -> None:
    assert read_state("acme/orders", state) == []


def test_an_entry_that_a_patch_has_deleted_is_absent_if_the_runtime_has_kept_its_null() -> None:
    """Flow's V2 runtime of before June 2026 kept the nulls of patches that it merged before it had a state."""
    state = {**kept({A: None, B: entry(A), C: None}), "finished": {KEY: {RANGE: {UUID: A}}}}
    assert [commit.next for commit in read_state("acme/orders", state)] == [B]


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every container of a value, with each of its names."""
    match value:
        case dict():
            return [(value, name) for name in value] + [place for each in value.values() for place in places(each)]
        case list():
            return [(value, at) for at in range(len(value))] + [place for each in value for place in places(each)]
        case _:
            return []


JSON: Final = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(max_size=40) | st.just(A),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=9), inner, max_size=3),
    max_leaves=5,
)


@given(data=st.data())
def test_any_change_is_refused_or_understood(data: st.DataObject) -> None:
    state = kept({A: entry(), B: entry(A), C: entry(B, files=None, fileList=["file:///w/c-files.json", 2, 6, 1624])})
    container, name = data.draw(st.sampled_from(places(state)))
    match data.draw(st.sampled_from(["replace", "remove", "add"])), container:
        case "replace", _:
            container[name] = data.draw(JSON)
        case "remove", _:
            del container[name]
        case _, dict():
            container[data.draw(st.text(max_size=9))] = data.draw(JSON)
        case _:
            container.append(data.draw(JSON))
    try:
        staged = read_state("acme/orders", state)
    except UserError:
        return
    for key_range, entries in (((state.get("bindingStates") or {}).get(KEY) or {}) or {}).items():
        named = {fence for fence, value in (entries or {}).items() if value is not None}
        assert {commit.next for commit in staged if commit.writer.key_range == key_range} == named


# Who reads a state


@dataclass(frozen=True)
class Task:
    """A task with a staged transaction of two rows, and a column that is still to be added."""

    warehouse: Path
    entry: Any
    value: str

    def apply_request(self, state: Any) -> request.Apply:
        orders = collection(ID, projection("note", "string"))
        task = materialization(local_config(self.warehouse), binding(orders, "note"))
        return request.Apply(task, state=state)

    def apply(self, state: Any) -> None:
        apply(self.apply_request(state))

    def plan(self, state: Any) -> None:
        plan_recorded([self.apply_request(state)])

    def show(self, state: Any) -> None:
        show(self._place(state), as_json=False)

    def reset(self, state: Any) -> None:
        reset(self._place(state), (KEY, RANGE), Decision.ADD, "to see", is_confirmed=True)

    def _place(self, state: Any) -> FenceArguments:
        config, kept_state = (self.warehouse.parent / name for name in ("config.json", "state.json"))
        config.write_text(json.dumps(local_config(self.warehouse)))
        kept_state.write_text(json.dumps(state))
        return FenceArguments(ConfigFile(str(config)), "shop.orders", MATERIALIZATION, str(kept_state))


@pytest.fixture
def task(tmp_path: Path) -> Task:
    warehouse = tmp_path / "warehouse"
    warehouse.mkdir()
    apply(request.Apply(materialization(local_config(warehouse), binding(collection(ID)))))
    staged = stage(local_catalog(warehouse), PATH, WRITER, 1, 2)
    return Task(warehouse, encode_added([staged])["bindingStates"][KEY][RANGE][staged.next], staged.next)


SPOILS: Final[dict[str, Callable[[Task], Any]]] = {
    "another range": lambda task: kept({task.value: task.entry}, "abc"),
    "a fork": lambda task: kept({task.value: task.entry, A: task.entry}),
    "a cycle": lambda task: kept({task.value: {**task.entry, "prev": task.value}}),
    "no value": lambda task: kept({"zz": task.entry}),
    "a newer version": lambda task: kept({task.value: {**task.entry, "version": 7}}),
    "a field of a newer version": lambda task: kept({task.value: {**task.entry, "positionDeletes": []}}),
    "negative rows": lambda task: kept({task.value: {**task.entry, "fileList": ["/x", 1, -1, 1], "files": []}}),
}


@pytest.mark.parametrize("read", [Task.apply, Task.plan, Task.show, Task.reset])
@pytest.mark.parametrize("spoil", SPOILS.values(), ids=SPOILS)
def test_whoever_reads_a_garbled_state_does_nothing(
    task: Task, spoil: Callable[[Task], Any], read: Callable[[Task, Any], None]
) -> None:
    before = files_of(task.warehouse)
    with pytest.raises(UserError, match="Nothing was committed, and the state was not changed"):
        read(task, spoil(task))
    assert files_of(task.warehouse) == before


def test_the_state_that_is_spoilt_there_would_land(task: Task) -> None:
    task.apply(kept({task.value: task.entry}))
    assert ids_of(local_catalog(task.warehouse), ("shop", "orders")) == [1, 2]


@pytest.mark.spark
@pytest.mark.parametrize("name", ["a cycle", pytest.param("a newer version", marks=pytest.mark.slow)])
def test_no_process_opens_on_a_garbled_state(tmp_path: Path, name: str) -> None:
    runtime = Runtime(tmp_path)
    runtime.apply()
    before = files_of(tmp_path / "warehouse")
    place, runtime.log = GARBLED[name]
    outcome = runtime.open_and_fail()
    assert outcome.status == 1
    assert place in outcome.last_log_line
    assert "Internal error" not in outcome.last_log_line
    assert files_of(tmp_path / "warehouse") == before
