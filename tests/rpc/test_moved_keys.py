"""With standard updates, a key or a root document stays in its column: older rows have no values in another one, so
they would not be found, or would be taken for those of the key null."""

from pathlib import Path
from typing import Final

import msgspec
import pytest

from connector.host.errors import UserError
from connector.iceberg.bound_table import BoundTable, bind_all
from connector.iceberg.commits.commit import commit_all_or_raise
from connector.model.binding import RowSettings, UpdateMode
from connector.model.state import WriterId, encode_added
from connector.rpc.apply import apply
from connector.rpc.validate import validate
from protocol import request
from protocol.flow import (
    WHOLE_RANGE,
    Collection,
    ConstraintType,
    Exists,
    FieldSelection,
    Json,
    Materialization,
    ValidateBinding,
)
from support.bindings import DOCUMENT, ID, MATERIALIZATION, PATH, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding
from support.rows.staged_rows import staged
from support.snapshots import check_text
from support.tables.local_tables import local_catalog

REGION: Final = projection("region", "string", "null", exists=Exists.MAY)
MY_ID: Final = projection("my_id", "integer", ptr="/id")
ROOT: Final = projection("root", "object", ptr="")
OLD_ID: Final[Json] = {"id": {"column": "my_id"}}


class Shop:
    """A task with standard updates."""

    def __init__(self, warehouse: Path) -> None:
        self.warehouse = warehouse
        self.catalog = local_catalog(warehouse)

    def task(
        self,
        bound: Collection,
        keys: tuple[str, ...],
        *values: str,
        document: str = "flow_document",
        config: Json = None,
        is_linked: bool = False,
    ) -> Materialization:
        """The task with this selection of fields."""
        assert config is None or isinstance(config, dict)
        changed = msgspec.structs.replace(
            binding(bound),
            resource_config={"table": "orders", "delta_updates": False},
            delta_updates=False,
            field_selection=FieldSelection(keys, values, document, config or {}),
            collection=None if is_linked else bound,
        )
        task = materialization(local_config(self.warehouse), changed)
        return msgspec.structs.replace(task, linked_collections=(bound,) if is_linked else ())

    def begin(self, task: Materialization, **row: Json) -> None:
        """Apply the task, and store a row."""
        apply(request.Apply(task))
        writer = WriterId(MATERIALIZATION, task.bindings[0].state_key, WHOLE_RANGE.key_range)
        commit_all_or_raise(self.catalog, [staged(self.catalog, row, writer=writer, path=PATH)])

    def refuse(self, task: Materialization, last: Materialization) -> str:
        """Why apply refuses the task. The table stays as it is, and validate would not have let it select so."""
        before = self.catalog.load_table(PATH).metadata_location
        with pytest.raises(UserError) as error:
            apply(request.Apply(task, last_materialization=last))
        assert self.catalog.load_table(PATH).metadata_location == before
        text = str(error.value)
        assert text.removeprefix(f"table {PATH}: ") in self.validate(task, last)
        return text

    def validate(self, task: Materialization, last: Materialization) -> str:
        """What validate refuses: the binding, or some of its fields; "" if it refuses nothing."""
        [bound] = task.bindings
        selection = bound.field_selection
        proposed = ValidateBinding(
            bound.resource_config,
            bound.collection,
            field_config=selection.field_config,
            group_by=selection.keys,
        )
        message = request.Validate(task.name, config=task.config, bindings=(proposed,), last_materialization=last)
        try:
            [answer] = validate(message).bindings
        except UserError as error:
            return str(error)
        refusals = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}
        constraints = (each.constraint for each in answer.projection_constraints)
        return "\n".join(each.reason for each in constraints if each.type in refusals)

    def change(self, task: Materialization, last: Materialization) -> BoundTable:
        """Validate, apply and open the task."""
        assert not self.validate(task, last)
        assert apply(request.Apply(task, last_materialization=last)).action_description == ""
        return self.bind(task)

    def bind(self, task: Materialization) -> BoundTable:
        """Open the task."""
        settings = RowSettings(updates=UpdateMode.KEEP_DELETED)
        [bound] = bind_all(self.catalog, task, WHOLE_RANGE.key_range, [settings])
        return bound


@pytest.fixture
def shop(tmp_path: Path) -> Shop:
    return Shop(tmp_path)


def test_a_field_without_a_column_does_not_become_a_part_of_the_key(shop: Shop) -> None:
    bound = collection(ID, REGION, DOCUMENT)
    last = shop.task(bound, ("id",))
    shop.begin(last, id=1, flow_document='{"id":1,"region":"eu"}')
    text = shop.refuse(shop.task(bound, ("region",), "id"), last)
    check_text("apply_errors", "a new part of the key without a column", text)


def test_a_table_whose_rows_are_all_gone_may_have_its_key_in_a_new_column(shop: Shop) -> None:
    """Its snapshot is empty, as the first one of each table of Nessie is."""
    last = shop.task(collection(MY_ID, DOCUMENT), ("my_id",))
    shop.begin(last, my_id=1, flow_document='{"id":1}')
    shop.catalog.load_table(PATH).delete()
    apply(request.Apply(shop.task(collection(ID, DOCUMENT), ("id",)), last_materialization=last))
    assert "id" in shop.catalog.load_table(PATH).schema().column_names


@pytest.mark.parametrize("is_linked", [False, True])
def test_a_key_whose_field_was_renamed_stays_in_its_column(shop: Shop, is_linked: bool) -> None:
    last = shop.task(collection(MY_ID, DOCUMENT), ("my_id",), is_linked=is_linked)
    shop.begin(last, my_id=1, flow_document='{"id":1}')
    renamed = collection(ID, DOCUMENT)
    text = shop.refuse(shop.task(renamed, ("id",)), last)
    check_text("apply_errors", "a key whose field was renamed", text)
    kept = shop.change(shop.task(renamed, ("id",), config=OLD_ID), last)
    assert [each.name for each in kept.binding.keys] == ["my_id"]


def test_a_document_whose_field_was_renamed_stays_in_its_column(shop: Shop) -> None:
    last = shop.task(collection(ID, DOCUMENT), ("id",))
    shop.begin(last, id=1, flow_document='{"id":1}')
    renamed = collection(ID, ROOT)
    text = shop.refuse(shop.task(renamed, ("id",), document="root"), last)
    assert """keep the column 'flow_document' with {"column": "flow_document"} in the field config""" in text
    config: Json = {"root": {"column": "flow_document"}}
    kept = shop.change(shop.task(renamed, ("id",), document="root", config=config), last)
    assert kept.binding.document
    assert kept.binding.document.name == "flow_document"


def test_a_key_does_not_move_to_the_column_of_another_field_of_its_location(shop: Shop) -> None:
    bound = collection(MY_ID, ID, DOCUMENT)
    last = shop.task(bound, ("my_id",), "id")
    shop.begin(last, my_id=1, id=1, flow_document='{"id":1}')
    text = shop.refuse(shop.task(bound, ("id",), "my_id"), last)
    assert "Field 'id' has the column 'my_id', and is to have 'id', which has values of its own" in text
    shop.change(last, last)


@pytest.mark.parametrize("keys", [("region",), ("region", "id"), ("id",)])
@pytest.mark.parametrize("is_landed", [True, False])
def test_all_keys_are_loaded_from_another_key_on(shop: Shop, keys: tuple[str, ...], *, is_landed: bool) -> None:
    """The runtime remembers the greatest key that it has stored, also if that was another key, and sends no Load for a
    greater one: text is less than a number."""
    bound, was = collection(ID, REGION, DOCUMENT), ("id", "region")
    first, then = shop.task(bound, was), shop.task(bound, keys, *{*was}.difference(keys))
    apply(request.Apply(first))
    writer = WriterId(MATERIALIZATION, first.bindings[0].state_key, WHOLE_RANGE.key_range)
    row: Json = {"id": 1, "region": "eu", "flow_document": '{"id":1,"region":"eu"}'}
    commit = staged(shop.catalog, row, writer=writer, path=PATH)
    if is_landed:
        commit_all_or_raise(shop.catalog, [commit])
    assert not shop.bind(first).may_have_other_rows
    state = None if is_landed else encode_added([commit])
    recorded = "record that it has older rows"
    change = request.Apply(then, last_materialization=first, state=state)
    assert recorded in apply(change).action_description
    assert shop.bind(then).may_have_other_rows
    assert recorded not in apply(change).action_description


def test_a_table_without_rows_gets_another_key_without_more_loads(shop: Shop) -> None:
    bound = collection(ID, REGION, DOCUMENT)
    first, then = shop.task(bound, ("id",), "region"), shop.task(bound, ("region",), "id")
    apply(request.Apply(first))
    apply(request.Apply(then, last_materialization=first))
    assert not shop.bind(then).may_have_other_rows


def test_the_same_key_in_another_field_needs_no_more_loads(shop: Shop) -> None:
    last = shop.task(collection(MY_ID, DOCUMENT), ("my_id",))
    shop.begin(last, my_id=1, flow_document='{"id":1}')
    then = shop.task(collection(ID, DOCUMENT), ("id",), config=OLD_ID)
    assert not shop.change(then, last).may_have_other_rows
