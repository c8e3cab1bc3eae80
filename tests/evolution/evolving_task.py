"""A task whose collection changes from version to version, by the side of the model of its table."""

from collections.abc import Mapping
from contextlib import suppress
from random import Random
from typing import Final, TypeAlias
from urllib.parse import quote

import msgspec
import pytest

from connector.host.errors import UserError
from connector.model.state import encode_added
from connector.model.state_reader import read_state
from evolution.crashes import Crash, Moments
from evolution.local_task import TASK, LocalTask
from evolution.random_versions import Property, Version, document, following, wanted
from evolution.table_model import NoEquivalentError, Row, TableModel, Verdict, Wanted
from fixtures.collection import DOCUMENT, NAMESPACE, Collection
from fixtures.conversation import line
from protocol.flow import ConstraintType, Json
from support.engines.canonical_rows import column_types, read_by_pyiceberg
from support.rows.expected_rows import canonical

Selected: TypeAlias = Mapping[str, Property]

REFUSED: Final = {ConstraintType.FIELD_FORBIDDEN, ConstraintType.INCOMPATIBLE}
KEPT: Final = {ConstraintType.FIELD_REQUIRED, ConstraintType.LOCATION_REQUIRED}
MOMENTS: Final = 5  # in which a process may end: few publications have more


class EvolvingTask:
    """The runtime, its user, and what both know."""

    def __init__(self, task: LocalTask, moments: Moments, random: Random) -> None:
        self._task, self._moments, self._random = task, moments, random
        self._version = Version()
        self._binding: Json = None  # as it was last applied
        self._model = TableModel()
        self._state: Json = None
        self._waiting: list[Row] = []  # of the transaction that the state names: they have not landed

    def publish(self) -> None:
        """The next version, and a session; or nothing, where its user gives the version up."""
        version = following(self._random, self._version)
        selected = self._validated(version)
        if selected is None and self._random.random() < 0.5:
            return
        if selected is None or not self._applied(version, selected) or not self._recovered():
            version = version.backfilled()
            selected = self._validated(version)
            assert selected is not None, "a table that is made anew can hold everything"
            assert self._applied(version, selected)
        self._version = version
        self._run_session(selected)

    def check(self) -> None:
        """The table is what the model says."""
        table = self._task.catalog.load_table((NAMESPACE, self._version.table))
        schema = {column.name: (str(column.field_type), column.required) for column in table.schema().fields}
        assert schema == self._model.schema
        names = list(column_types(table))
        found = [dict(zip(names, row, strict=True)) for row in read_by_pyiceberg(table)]
        assert sorted(found, key=_order) == sorted(self._model.contents, key=_order)

    def _validated(self, version: Version) -> Selected | None:
        """The fields that are selected after validation; None if the version cannot be published like this."""
        anew = self._makes_anew(version)
        lacks_a_field = not anew and self._model.lacks_a_field(version.wanted, version.mode)
        binding = {**version.collection.validate_binding(), "backfill": version.backfill}
        if lacks_a_field:
            with pytest.raises(UserError, match="select its field"):
                self._task.validated(binding, self._binding)
            return None
        constraints = self._task.validated(binding, self._binding).projection_constraints
        verdicts = {}
        for each in version.wanted:
            types = {told.constraint.type for told in constraints if told.field == each.field}
            verdicts[each.field] = Verdict(bool(types & REFUSED), bool(types & KEPT))
            assert verdicts[each.field] == self._expected(each, version.mode, anew=anew), (each, constraints)
        if any(verdict.refused and verdict.kept for verdict in verdicts.values()):
            return None
        return {
            name: each
            for name, each in version.properties.items()
            if verdicts[name].kept or (not verdicts[name].refused and self._random.random() < 0.85)
        }

    def _expected(self, field: Wanted, mode: str, *, anew: bool) -> Verdict:
        return Verdict(False, field.is_key) if anew else self._model.verdict(field, mode)

    def _makes_anew(self, version: Version) -> bool:
        return self._binding is None or version.backfill != self._binding["backfill"]

    def _applied(self, version: Version, selected: Selected) -> bool:
        """False where a key's values stand against it."""
        columns = (*(each.wanted for each in selected.values()), wanted(DOCUMENT))
        binding = _binding(version, selected)
        anew = self._makes_anew(version)
        # Not every runtime gives apply the state.
        is_given = anew or self._random.random() < 0.5
        if anew:
            self._model, self._waiting = TableModel.made(columns), []
        elif is_given:
            self._land()
        try:
            if not anew:
                self._model.evolve(columns)
        except NoEquivalentError:
            with pytest.raises(UserError, match=r"'id'.* to which its values cannot be converted.*backfill"):
                self._apply(binding, is_given=is_given)
            return False
        self._apply(binding, is_given=is_given)
        for last in (self._binding, binding):
            assert self._task.applied(binding, last=last).action_description == ""
        self._binding = binding
        return True

    def _apply(self, binding: Json, *, is_given: bool) -> None:
        """In as many processes as it takes."""
        for _ in range(self._random.randrange(4)):
            with suppress(Crash), self._moments.ending_after(self._random.randrange(MOMENTS)):
                self._task.applied(binding, self._binding, self._state if is_given else None, self._moments.rewrite)
        answer = self._task.applied(binding, self._binding, self._state if is_given else None)
        if answer.state:  # the state has named one transaction, which is settled
            self._state = None

    def _recovered(self) -> bool:
        """Whether what the state names can land, as it must before a session begins."""
        commits = read_state(TASK, self._state)
        try:
            self._land()
        except NoEquivalentError:
            with pytest.raises(UserError, match=r"have values without an equivalent.*ackfill"):
                self._task.landed(*commits)
            return False
        if commits:
            self._task.landed(*commits)
        self._state = None
        return True

    def _land(self) -> None:
        self._model.land(self._waiting)
        self._waiting = []

    def _run_session(self, selected: Selected) -> None:
        """Transactions of which the last may be committed by the runtime only."""
        for is_last in (False, True):
            texts = [document(self._random, selected) for _ in range(self._random.randrange(1, 3))]
            staged = self._task.staged(self._binding, [_store(document) for document in texts])
            rows = [self._row(document, selected) for document in texts]
            if is_last and self._random.random() < 0.5:
                self._state, self._waiting = encode_added([staged]), rows
            else:
                self._task.landed(staged)
                self._model.land(rows)

    def _row(self, texts: Mapping[str, str], selected: Selected) -> Row:
        fields = [*(each.wanted for each in selected.values()), wanted(DOCUMENT)]
        all_texts = {**texts, DOCUMENT.name: _document(texts)}
        return self._model.row((each.field, canonical(each.type, all_texts[each.field])) for each in fields)


def _binding(version: Version, selected: Selected) -> Json:
    fields = tuple(each.field for each in selected.values())
    collection = Collection(version.collection.name, version.table, fields, version.collection.settings)
    state_key = quote(f"{NAMESPACE}/{version.table}", safe="") + f".v{version.backfill}"
    return {**collection.open_binding(), "backfill": version.backfill, "stateKey": state_key}


def _store(texts: Mapping[str, str]) -> bytes:
    key, *values = (msgspec.Raw(text.encode()) for text in texts.values())
    return line("store", {"key": [key], "values": values, "doc": msgspec.Raw(_document(texts).encode())})


def _document(texts: Mapping[str, str]) -> str:
    return f'{{"id":{texts["id"]}}}'


def _order(row: Mapping[str, str | None]) -> list[tuple[str, str]]:
    return sorted((name, str(text)) for name, text in row.items())
