"""Tables with odd names and odd columns are made, written to and read back in every kind of catalog."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Final

import pytest
from botocore.exceptions import ClientError
from pyiceberg.schema import Schema
from pyiceberg.types import NestedField, StringType

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.model.table_identifier import TableIdentifier
from evolution.local_task import LocalTask
from fixtures.collection import Collection, Field
from fixtures.conversation import Row, store
from protocol.flow import Constraint, ConstraintType, Json
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.hive import IN_ONE_WORKER, Metastore
from support.servers.postgres import Postgres
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import S3Server

pytestmark = pytest.mark.catalog


RESERVED_WORDS: Final = (
    *("all", "and", "array", "as", "by", "case", "cast", "column", "create", "current_timestamp", "date", "delete"),
    *("desc", "distinct", "drop", "else", "end", "exists", "false", "from", "full", "group", "having", "in", "index"),
    *("insert", "interval", "into", "is", "join", "key", "like", "limit", "natural", "not", "null", "offset", "on"),
    *("or", "order", "partition", "primary", "row", "rows", "select", "set", "table", "then", "timestamp", "true"),
    *("union", "unique", "update", "user", "using", "values", "when", "where", "window", "with", "None", "self"),
)
CHARACTERS: Final = (
    *("$", "$1", "${x}", "%", "%s", "%(x)s", "{}", "{0}", "'", "''", '"', '""', "`", "\\", "\\n", "/", "//", "#", "?"),
    *(".", "..", "a.b", ".a", "b.", " ", " before", "after ", "tab\tinside", "--", ";", ",", "~", "*"),
    *("-", "+1", "1", "1.5", "[0]", "a:b", "a=b", "&amp;", "<b>", "_x002E_", "_meta/op", "__proto__", "N/A"),
    *("\U0001f600", "\U0001f468\u200d\U0001f469", "表", "ß", "\u00e9", "e\u0301", "\ufeffmark", "\u200b"),
    *("n" * 255, "表" * 255, "\U0001f600" * 255),
)
ODD_COLUMNS: Final = (*RESERVED_WORDS, *CHARACTERS)
A_THOUSAND_COLUMNS: Final = (*ODD_COLUMNS, *(f"column {number}" for number in range(1000 - len(ODD_COLUMNS))))

# Namespace and table.
ODD_NAMES: Final = [
    *(("select", "table"), ("o'clock", 'a "quoted" `table`'), ("$x {0}", "$1; --"), ("123", "表 \U0001f600")),
    ("n" * 255, "t" * 255),
]
# The web servers of REST catalogs refuse these, and validate says so.
NOT_ON_REST: Final = [("100%s", "%(x)s"), ("a/b", "c\\d")]


def on_local(request: pytest.FixtureRequest) -> Json:
    return {"catalog": {"catalog_type": "Local", "warehouse": str(request.getfixturevalue("tmp_path"))}}


def on_sql(request: pytest.FixtureRequest) -> Json:
    server: Postgres = request.getfixturevalue("postgres")
    return in_a_bucket(request, {"catalog_type": "SQL", "uri": server.new_database(), "password": server.password})


def on_rest(request: pytest.FixtureRequest) -> Json:
    server: RestCatalogOnS3 = request.getfixturevalue("rest_on_s3")
    return on_s3(server.s3, server.bucket, "unused", rest(server.uri))


def on_glue(request: pytest.FixtureRequest) -> Json:
    monkeypatch: pytest.MonkeyPatch = request.getfixturevalue("monkeypatch")
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", request.getfixturevalue("glue_uri"))
    return in_a_bucket(request, glue())


def on_hive(request: pytest.FixtureRequest) -> Json:
    server: Metastore = request.getfixturevalue("metastore")
    storage = {"storage_type": "Local Files", "directory": str(server.warehouse)}
    return {"catalog": {"catalog_type": "Hive Metastore", "uri": server.uri}, "storage": storage}


def in_a_bucket(request: pytest.FixtureRequest, catalog: Json) -> Json:
    s3: S3Server = request.getfixturevalue("s3_server")
    return on_s3(s3, s3.new_bucket(), "unused", catalog)


CATALOGS: Final = {
    "Local": (on_local, ODD_NAMES + NOT_ON_REST),
    "SQL": (on_sql, ODD_NAMES + NOT_ON_REST),
    "Iceberg REST Server": (on_rest, ODD_NAMES),
    "AWS Glue": (on_glue, ODD_NAMES + NOT_ON_REST),
    "Hive Metastore": (on_hive, [("select", "table"), ("_123", "t" * 128)]),
}


# A metastore writes a thousand columns one by one, several times a commit: half a minute.
SLOW: Final = {"Hive Metastore": (IN_ONE_WORKER, pytest.mark.slow)}


@pytest.mark.parametrize("catalog", [pytest.param(name, marks=SLOW.get(name, ())) for name in CATALOGS])
def test_rows_are_read_back_from_tables_and_columns_of_odd_names(
    catalog: str, request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    configured, paths = CATALOGS[catalog]
    config = {"namespace": "unused", **configured(request)}
    with open_catalog(parse(config, [])[0]) as opened:
        task = LocalTask(tmp_path, opened, config)
        for number, path in enumerate(paths):
            names = path if number else A_THOUSAND_COLUMNS
            assert stored_and_read_back(task, path, names) == [{name: f"in {name}" for name in names}]


def test_a_column_s_name_that_glue_refuses_is_refused_by_validate_with_what_to_do(
    request: pytest.FixtureRequest, tmp_path: Path
) -> None:
    config = {"namespace": "unused", **on_glue(request)}
    endpoint, _ = parse(config, [])
    with open_catalog(endpoint) as opened:
        opened.create_namespace("lines")
        schema = Schema(NestedField(1, "two\nlines", StringType()))
        with pytest.raises(ClientError, match="of more lines"):
            opened.create_table(("lines", "odd"), schema, table_location(endpoint, TableIdentifier("lines", "odd")))
        task = LocalTask(tmp_path, opened, config)
        key = Field("id", "/id", ("string",), exists="MUST", is_key=True)
        binding = Collection("acmeCo/odd", "odd", (key, Field("two\nlines", "/a", ("string",))), {}).validate_binding()
        assert task.validated(binding).constraints["two\nlines"] == Constraint(
            ConstraintType.FIELD_FORBIDDEN,
            "A column's name has 1 to 255 characters, and no line breaks or the like in AWS Glue: give it one with "
            '{"column": "…"} in the field config.',
        )
        named = binding | {"fieldConfig": {"two\nlines": {"column": "two lines"}}}
        assert task.validated(named).constraints["two\nlines"].type is ConstraintType.LOCATION_RECOMMENDED
        of_two_lines = Collection("acmeCo/odd", "odd", (replace(key, name="i\nd"),), {}).validate_binding()
        with pytest.raises(
            UserError, match=r"location /id must be materialized, but none .* no line breaks .* AWS Glue"
        ):
            task.validated(of_two_lines)


def stored_and_read_back(task: LocalTask, path: tuple[str, str], names: Sequence[str]) -> list[Json]:
    namespace, table = path
    fields = tuple(Field(name, f"/{number}", ("string",)) for number, name in enumerate(names[1:]))
    key = Field(names[0], "/key", ("string",), exists="MUST", is_key=True)
    collection = Collection("acmeCo/odd", table, (key, *fields), {"namespace": namespace}, namespace)
    validated = task.validated(collection.validate_binding())
    assert {constraint.type for constraint in validated.constraints.values()} == {
        ConstraintType.LOCATION_REQUIRED,
        ConstraintType.LOCATION_RECOMMENDED,
    }
    assert validated.resource_path == path
    binding = collection.open_binding()
    task.applied(binding)
    document = {"key": f"in {names[0]}", **{str(number): f"in {name}" for number, name in enumerate(names[1:])}}
    landed = task.landed(task.staged(binding, [store(collection, Row(0, document), packed=True)]))
    assert task.applied(binding, last=binding).action_description == ""
    return [{name: row[name] for name in names} for row in landed.scan().to_arrow().to_pylist()]
