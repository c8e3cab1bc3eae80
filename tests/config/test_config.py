"""A config is judged whole, by the schemas that spec prints, and read into values."""

import re
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path

import jsonschema
import msgspec
import orjson
import pytest

from connector.cli.task_tables import parse_table
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.credentials import AwsCredentials, AwsIam, AwsRole, MachineCredentials
from connector.config.endpoint_config import ENDPOINT_SCHEMA, AdvancedOptions, EndpointConfig, Notification
from connector.config.keywords import KEYWORDS
from connector.config.resource_config import RESOURCE_SCHEMA, ResourceConfig
from connector.config.rules import chosen_catalog
from connector.config.secret import Secret
from connector.config.settings import parse, resource_path
from connector.config.values import FEATURE_FLAGS, SchemaEvolution
from connector.host.errors import InvalidConfigError
from connector.model.invalid_values import OnInvalid
from connector.model.properties import Properties
from protocol.flow import Json
from support.jars import REPOSITORY

LOCAL: Json = {"namespace": "ns", "catalog": {"catalog_type": "Local"}}
ACCESS_KEY: Json = {"auth_type": "AWSAccessKey", "awsAccessKeyId": "id", "awsSecretAccessKey": "secret"}
GLUE: Json = {"namespace": "ns", "bucket": "b", "region": "us-east-1", "credentials": ACCESS_KEY}
REST: Json = {
    **GLUE,
    "catalog": {"catalog_type": "Iceberg REST Server", "uri": "https://host/catalog", "warehouse": "wh"},
}
EVERYTHING: Json = {
    **REST,
    "aws_access_key_id": "older-id",
    "aws_secret_access_key": "older secret",
    "prefix": "/lake/flow/",
    "upload_interval": "PT1H30M",
    "s3_endpoint": "http://store:9000",
    "notify": {"url": "https://hooks/lake?token=t", "secret": "whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX"},
    "catalog": {
        **REST["catalog"],
        "credential": "client:pass",
        "token": "bearer",
        "scope": "all",
        "oauth2_server_uri": "https://idp/token",
        "properties": {"header.X-Key": "in a header"},
    },
    "advanced": {
        "feature_flags": "allow_existing_tables_for_new_bindings",
        "nanosecond_timestamps": False,
        "variant_columns": False,
        "spark": {"spark.master": "local[2]"},
    },
}
IAM: Json = {
    **GLUE,
    "credentials": {
        "auth_type": "AWSIAM",
        "aws_region": "us-east-1",
        "aws_role_arn": "arn:aws:iam::1:role/flow",
        "aws_access_key_id": "id",
        "aws_secret_access_key": "secret",
        "aws_session_token": "token",
    },
}

ROLE: Json = {
    **GLUE,
    "credentials": {
        "auth_type": "AWSRole",
        "aws_role_arn": "arn:aws:iam::1:role/flow",
        "external_id": "ours",
        "awsAccessKeyId": "id",
        "awsSecretAccessKey": "secret",
    },
}
S3_TABLES: Json = {
    "namespace": "ns",
    "credentials": ACCESS_KEY,
    "catalog": {"catalog_type": "Amazon S3 Tables", "table_bucket_arn": "arn:aws:s3tables:eu-west-1:1:bucket/lake"},
}
DOCUMENTATION = (REPOSITORY / "docs" / "configuration.md").read_text()
EXAMPLES = [
    orjson.loads(found.replace("…", "secret"))
    for found in re.findall(r"```json\n(\{\n  \"namespace\".*?)```", DOCUMENTATION, re.DOTALL)
]
MACHINE_CREDENTIALS: Json = {"advanced": {"feature_flags": "use_machine_credentials"}}


def complaints(endpoint: Json, *resources: Json) -> list[str]:
    with pytest.raises(InvalidConfigError) as raised:
        parse(endpoint, resources)
    return str(raised.value).splitlines()


def without(endpoint: Json, name: str) -> Json:
    return {key: value for key, value in endpoint.items() if key != name}


def with_catalog(**properties: Json) -> Json:
    return {**LOCAL, "catalog": {"catalog_type": "Local", **properties}}


def with_advanced(**properties: Json) -> Json:
    return {**LOCAL, "advanced": properties}


@pytest.mark.parametrize("example", EXAMPLES, ids=chosen_catalog)
def test_every_documented_example_is_a_config(example: Json) -> None:
    endpoint, _ = parse(example, [{"table": "orders"}])
    assert endpoint.namespace == "shop"


def test_every_kind_of_catalog_has_a_documented_example() -> None:
    kinds = {
        choice["properties"]["catalog_type"]["const"] for choice in ENDPOINT_SCHEMA["properties"]["catalog"]["oneOf"]
    }
    assert {chosen_catalog(example) for example in EXAMPLES} == kinds


def test_everything_that_can_be_set_arrives() -> None:
    endpoint, _ = parse(EVERYTHING, [])
    assert endpoint == EndpointConfig(
        namespace="ns",
        catalog=RestCatalog(
            "https://host/catalog",
            "wh",
            Secret("client:pass"),
            Secret("bearer"),
            "all",
            "https://idp/token",
            properties=Properties({"header.X-Key": "in a header"}),
        ),
        upload_interval=timedelta(minutes=90),
        credentials=AwsCredentials("id", Secret("secret")),
        bucket="b",
        prefix="lake/flow",
        region="us-east-1",
        s3_endpoint="http://store:9000",
        notify=Notification(
            url=Secret("https://hooks/lake?token=t"), secret=Secret("whsec_AAECAwQFBgcICQoLDA0ODxAREhMUFRYX")
        ),
        advanced=AdvancedOptions(
            feature_flags=frozenset({"allow_existing_tables_for_new_bindings"}),
            spark=Properties({"spark.master": "local[2]"}),
        ),
    )


@pytest.mark.parametrize(
    ("text", "prefix"),
    [
        ("", ""),
        ("/", ""),
        ("lake", "lake"),
        ("//lake//flow//", "lake/flow"),
        ("./lake/./flow/../b", "lake/b"),
        (" a ", " a "),
    ],
)
def test_a_prefix_is_one_that_every_client_of_a_store_takes(text: str, prefix: str) -> None:
    assert parse({**LOCAL, "prefix": text}, [])[0].prefix == prefix


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("HTTP://Store:9000", "http://Store:9000"), ("Https://Store/Path", "https://Store/Path"), ("Store:9000",) * 2],
)
def test_the_scheme_of_an_endpoint_may_be_in_upper_case(text: str, endpoint: str) -> None:
    assert parse({**GLUE, "s3_endpoint": text}, [])[0].s3_endpoint == endpoint


def test_a_resource_arrives_with_its_table_properties() -> None:
    resource = {
        "table": "T",
        "namespace": "N",
        "delta_updates": False,
        "additional_table_properties": {"write.metadata.compression-codec": "gzip"},
    }
    _, resources = parse(LOCAL, [resource])
    assert resources == [
        ResourceConfig(
            "T",
            "N",
            delta_updates=False,
            additional_table_properties=Properties({"write.metadata.compression-codec": "gzip"}),
        ),
    ]


@pytest.mark.parametrize(
    ("endpoints", "bindings", "expected"),
    [
        (None, None, SchemaEvolution.FULL),
        ("strict", None, SchemaEvolution.STRICT),
        (None, "add_columns", SchemaEvolution.ADD_COLUMNS),
        ("strict", "full", SchemaEvolution.FULL),
    ],
)
def test_a_bindings_schema_evolution_overrides_the_endpoints(
    endpoints: str | None, bindings: str | None, expected: SchemaEvolution
) -> None:
    _, [resource] = parse(with_advanced(schema_evolution=endpoints), [{"table": "t", "schema_evolution": bindings}])
    assert resource.schema_evolution is expected


def test_a_bindings_format_version_overrides_the_endpoints() -> None:
    _, [without, own] = parse(with_advanced(format_version=3), [{"table": "t"}, {"table": "u", "format_version": 2}])
    assert (without.format_version, own.format_version) == (3, 2)
    assert parse(LOCAL, [{"table": "t"}])[1][0].format_version == 2


def test_a_whole_number_may_have_a_fraction_of_zero() -> None:
    endpoint, [resource] = parse(
        with_advanced(max_waiting_commits=7.0, commit_after_rows=1e3), [{"table": "t", "format_version": 3.0}]
    )
    found = (endpoint.advanced.max_waiting_commits, endpoint.advanced.commit_after_rows, resource.format_version)
    assert found == (7, 1000, 3)
    assert {*map(type, found)} == {int}


@pytest.mark.parametrize(
    "uri",
    [
        "postgresql://me@host/lake?sslmode=verify-full&sslrootcert=/etc/ca.pem",
        "postgresql://me@[2001:db8::1]:5432/lake",
        "postgresql://host/lake?application_name=a%20b&connect_timeout=5",
    ],
)
def test_a_database_may_have_parameters_of_libpq(uri: str) -> None:
    endpoint, _ = parse({**GLUE, "catalog": {"catalog_type": "SQL", "uri": uri}}, [])
    assert isinstance(endpoint.catalog, SqlCatalog)
    assert endpoint.catalog.uri == uri


@pytest.mark.parametrize("address", ["HTTP://store:9000", "https://[::1]:9000", "store_1:9000", "store.example.com"])
def test_an_s3_endpoint_may_have_no_scheme(address: str) -> None:
    endpoint, _ = parse({**GLUE, "s3_endpoint": address}, [])
    assert endpoint.s3_endpoint == address.replace("HTTP", "http")


def test_properties_of_catalogs_may_have_pyiceberg_s_forms() -> None:
    properties = {
        "header.X-Key": "Grüße, with spaces",
        "header.Empty": "",
        "rest-page-size": "100",
        "s3.anonymous": "True",
        "s3.connect-timeout": "0.5",
        "s3.proxy-uri": "http://me:secret@proxy:3128",
    }
    absent = {"namespace-separator": "", "s3.request-timeout": ""}
    endpoint, _ = parse({**REST, "catalog": {**REST["catalog"], "properties": {**properties, **absent}}}, [])
    assert isinstance(endpoint.catalog, RestCatalog)
    assert dict(endpoint.catalog.properties) == properties


def test_nanoseconds_need_format_version_3_unless_a_binding_says_otherwise() -> None:
    resources = [{"table": "t"}, {"table": "u", "format_version": 2}]
    _, [without, own] = parse(with_advanced(nanosecond_timestamps=True), resources)
    assert (without.format_version, own.format_version) == (3, 2)


def test_a_resource_arrives_with_its_policy_for_invalid_values() -> None:
    _, [resource] = parse(LOCAL, [{"table": "t", "on_invalid": "quarantine", "max_rejected_ratio": 1}])
    assert (resource.on_invalid, resource.max_rejected_ratio) == (OnInvalid.QUARANTINE, 1)


def test_what_is_left_out_has_the_defaults_that_the_schemas_print() -> None:
    endpoint, resources = parse(LOCAL, [{"table": "t"}])
    assert endpoint == EndpointConfig(namespace="ns", catalog=LocalCatalog(), upload_interval=timedelta(minutes=5))
    assert resources == [ResourceConfig("t", namespace=None, delta_updates=True)]
    assert ENDPOINT_SCHEMA["properties"]["upload_interval"]["default"] == "PT5M"
    assert RESOURCE_SCHEMA["properties"]["delta_updates"]["default"] is True


def test_without_a_catalog_it_is_glue() -> None:
    assert parse(GLUE, [])[0].catalog == GlueCatalog()


def test_glue_may_be_another_account() -> None:
    endpoint, _ = parse({**GLUE, "catalog": {"catalog_type": "AWS Glue", "glue_id": "123"}}, [])
    assert endpoint.catalog == GlueCatalog("123")


def test_the_older_keys_are_used_where_credentials_are_absent() -> None:
    older = {**without(GLUE, "credentials"), "aws_access_key_id": "k", "aws_secret_access_key": "s"}
    assert parse(older, [])[0].credentials == AwsCredentials("k", Secret("s"))


def test_the_keys_of_an_assumed_role_are_used() -> None:
    credentials = parse(IAM, [])[0].credentials
    assert isinstance(credentials, AwsIam)
    assert credentials.keys == AwsCredentials("id", Secret("secret"), Secret("token"))


def test_a_role_is_assumed_with_keys_of_its_own_config() -> None:
    role = parse(ROLE, [])[0].credentials
    assert role == AwsRole("arn:aws:iam::1:role/flow", "ours", "materialize-iceberg", "id", Secret("secret"))
    assert isinstance(role, AwsRole)
    assert role.own == AwsCredentials("id", Secret("secret"))


def test_a_token_may_have_white_space_around_it_but_none_within() -> None:
    """The field has several lines, so a copied token often ends with a line break. No header may have one."""

    def token_of(text: str) -> Secret | None:
        catalog = {"catalog_type": "Iceberg REST Server", "uri": "https://host", "warehouse": "lake", "token": text}
        endpoint, _ = parse({"namespace": "shop", "catalog": catalog}, [])
        assert isinstance(endpoint.catalog, RestCatalog)
        return endpoint.catalog.token

    assert token_of("eyJ.a-b_c/+=\r\n") == token_of(" eyJ.a-b_c/+=") == Secret("eyJ.a-b_c/+=")
    for text in ("a\nb", "a b", " ", "a\0"):
        with pytest.raises(InvalidConfigError, match="/catalog/token: must be one line"):
            token_of(text)


def test_temporary_keys_have_a_session_token() -> None:
    temporary = {**ACCESS_KEY, "awsAccessKeyId": "ASIA1", "awsSessionToken": "token"}
    credentials = AwsCredentials("ASIA1", Secret("secret"), Secret("token"))
    assert parse({**GLUE, "credentials": temporary}, [])[0].credentials == credentials


def test_the_machine_s_credentials_are_used_only_where_a_flag_allows_it_and_nothing_is_given() -> None:
    without_keys = without(GLUE, "credentials")
    assert parse({**without_keys, **MACHINE_CREDENTIALS}, [])[0].credentials == MachineCredentials()
    assert parse({**GLUE, **MACHINE_CREDENTIALS}, [])[0].credentials == AwsCredentials("id", Secret("secret"))
    role = {"auth_type": "AWSRole", "aws_role_arn": "arn:aws:iam::1:role/flow", "role_session_name": "lake"}
    parsed = parse({**without_keys, "credentials": role, **MACHINE_CREDENTIALS}, [])[0].credentials
    assert parsed == AwsRole(role["aws_role_arn"], session_name="lake")
    assert isinstance(parsed, AwsRole)
    assert parsed.own == MachineCredentials()
    assert complaints({**without_keys, "credentials": role}) == [
        f"/credentials/{name}: is required unless the feature flag use_machine_credentials is on"
        for name in ("awsAccessKeyId", "awsSecretAccessKey")
    ]


def test_a_hive_metastore_may_be_several_servers() -> None:
    uri = "thrift://one:9083,thrift://two:9083"
    catalog = {"catalog_type": "Hive Metastore", "uri": uri, "properties": {"ugi": "flow:etl"}}
    assert parse({**GLUE, "catalog": catalog}, [])[0].catalog == HiveCatalog(uri, Properties({"ugi": "flow:etl"}))


@pytest.mark.parametrize("uri", ["postgresql://user@host:5432/lake", "postgresql://host/lake?sslmode=require"])
def test_an_sql_catalog_has_its_password_beside_its_address(uri: str) -> None:
    catalog = {"catalog_type": "SQL", "uri": uri, "password": "secret"}
    assert parse({**GLUE, "catalog": catalog}, [])[0].catalog == SqlCatalog(uri, Secret("secret"), "iceberg")


def test_a_table_bucket_says_its_region() -> None:
    catalog = parse(S3_TABLES, [])[0].catalog
    assert isinstance(catalog, S3TablesCatalog)
    assert (catalog.region, catalog.uri) == ("eu-west-1", "https://s3tables.eu-west-1.amazonaws.com/iceberg")


@pytest.mark.parametrize("endpoint", [LOCAL, GLUE, REST, EVERYTHING, IAM, ROLE, S3_TABLES])
def test_an_accepted_config_fits_the_printed_schema_for_any_validator(endpoint: Json) -> None:
    parse(endpoint, [])
    jsonschema.Draft202012Validator(ENDPOINT_SCHEMA).validate(endpoint)


def test_the_nulls_of_the_public_connector_fit_the_printed_schema() -> None:
    nulls = {"aws_access_key_id": None, "aws_secret_access_key": None, "advanced": None}
    jsonschema.Draft202012Validator(ENDPOINT_SCHEMA).validate({**GLUE, **nulls})


@pytest.mark.parametrize("endpoint", [LOCAL, GLUE, REST])
def test_nulls_are_as_good_as_absent(endpoint: Json) -> None:
    nulls: Json = dict.fromkeys(ENDPOINT_SCHEMA["properties"])
    advanced: Json = dict.fromkeys(ENDPOINT_SCHEMA["properties"]["advanced"]["properties"])
    assert parse({**nulls, **endpoint}, []) == parse(endpoint, [])
    assert parse({**endpoint, "advanced": advanced}, []) == parse(endpoint, [])
    resource_nulls: Json = dict.fromkeys(RESOURCE_SCHEMA["properties"])
    assert parse(endpoint, [{**resource_nulls, "table": "t"}]) == parse(endpoint, [{"table": "t"}])


def test_an_optional_setting_that_is_empty_in_a_form_is_as_good_as_absent() -> None:
    empty: Json = {**REST["catalog"], "credential": "", "oauth2_server_uri": "", "properties": {}}
    assert parse({**REST, "catalog": empty}, []) == parse(REST, [])
    frequency = {"syncFrequency": "5m"}
    schedule = {**frequency, "timezone": "", "fastSyncStartTime": "", "fastSyncStopTime": ""}
    assert parse({**LOCAL, "syncSchedule": schedule}, []) == parse({**LOCAL, "syncSchedule": frequency}, [])
    assert complaints({**REST, "catalog": {**empty, "uri": ""}}) == ["/catalog/uri: must not be empty"]


def test_white_space_around_a_copied_secret_does_not_count() -> None:
    copied = {**ACCESS_KEY, "awsSecretAccessKey": "secret\n"}
    assert parse({**GLUE, "credentials": copied}, []) == parse(GLUE, [])
    endpoint, _ = parse({**REST, "catalog": {**REST["catalog"], "credential": " client:pass\n"}}, [])
    assert (
        endpoint.catalog == parse({**REST, "catalog": {**REST["catalog"], "credential": "client:pass"}}, [])[0].catalog
    )


def test_an_endpoint_may_have_the_name_of_the_bucket_or_a_path() -> None:
    for address in ("http://b:9000", "b:9000", "https://store/storage/v1/s3"):
        endpoint, _ = parse({**GLUE, "s3_endpoint": address}, [])
        assert endpoint.s3_endpoint == address


def test_a_required_null_is_as_bad_as_absent() -> None:
    assert complaints({**LOCAL, "namespace": None}, {"table": None}) == [
        "/namespace: is required",
        "bindings[0] /table: is required",
    ]


def test_all_that_is_wrong_is_said_at_once_and_by_path() -> None:
    endpoint = {
        "namespace": "a.b",
        "buckett": "b",
        "upload_interval": "P1D",
        "catalog": {"catalog_type": "Iceberg REST Server", "uri": "host", "token": 5},
        "advanced": {"feature_flags": "fast", "variant_columns": True, "spark": {"master": "x", "spark.a": 1}},
    }
    resources = [{"table": "t"}, {"table": "a.b", "namespace": "n.m"}, {"delta_updates": "yes"}, "t"]
    assert sorted(complaints(endpoint, *resources)) == [
        "/advanced/feature_flags: 'fast' is not a feature flag: correct or remove it; the feature flags are "
        "allow_existing_tables_for_new_bindings, retain_existing_data_on_backfill, use_machine_credentials, "
        "nested_dot_hash_location_style",
        "/advanced/spark/master: must be a setting whose name begins with spark.",
        "/advanced/spark/spark.a: must be a string",
        "/advanced/variant_columns: must be false: PyIceberg, which the connector uses, cannot read tables with "
        "variants yet",
        "/buckett: is not a known property; did you mean bucket?",
        "/catalog/token: must be a string",
        "/catalog/uri: must begin with http:// or https://",
        "/namespace: must not contain a dot",
        "/upload_interval: must be a duration of hours, minutes and seconds, such as PT5M or PT1H30M, and at most PT4H",
        "bindings[1] /namespace: must not contain a dot",
        "bindings[1] /table: must not contain a dot",
        "bindings[2] /delta_updates: must be true or false",
        "bindings[2] /table: is required",
        "bindings[3] /: must be an object",
    ]


@pytest.mark.parametrize(
    ("setting", "complaint"),
    [
        ({"on_invalid": "nul"}, "/on_invalid: must be one of 'stop', 'null', 'quarantine'"),
        ({"on_invalid": False}, "/on_invalid: must be a string"),
        ({"max_rejected_ratio": "0.1"}, "/max_rejected_ratio: must be a number"),
        ({"max_rejected_ratio": -0.1}, "/max_rejected_ratio: must be at least 0"),
        ({"max_rejected_ratio": 10}, "/max_rejected_ratio: must be at most 1"),
    ],
)
def test_what_a_resource_says_of_invalid_values_is_checked(setting: Json, complaint: str) -> None:
    assert complaints(LOCAL, {"table": "t", **setting}) == [f"bindings[0] {complaint}"]


@pytest.mark.parametrize(
    ("endpoint", "complaint"),
    [
        (None, "/: the config is missing"),
        ([], "/: must be an object"),
        ({**LOCAL, "namespace": ""}, "/namespace: must not be empty"),
        ({**LOCAL, "aws_access_key_id": "k"}, "/aws_secret_access_key: is required if aws_access_key_id is set"),
        ({**LOCAL, "aws_secret_access_key": "k"}, "/aws_access_key_id: is required if aws_secret_access_key is set"),
        (without(GLUE, "bucket"), "/bucket: is required by AWS Glue"),
        (without(S3_TABLES, "credentials"), "/credentials: is required by Amazon S3 Tables"),
        (
            {**S3_TABLES, "catalog": {**S3_TABLES["catalog"], "table_bucket_arn": "lake"}},
            "/catalog/table_bucket_arn: must be the ARN of a table bucket, such as "
            "arn:aws:s3tables:us-east-1:123456789012:bucket/lake",
        ),
        *(
            (
                {**GLUE, "catalog": {"catalog_type": "SQL", "uri": uri}},
                "/catalog/uri: must be postgresql://user@host/database. Put the password into /catalog/password",
            )
            for uri in (
                "mysql://host/lake",
                "postgresql://user:secret@host/lake",
                "postgresql://host/lake?a=b&password=secret",
                "postgresql://host",
                "lake",
            )
        ),
        *(
            (
                {**GLUE, "catalog": {"catalog_type": "SQL", "uri": f"postgresql://host/lake?{parameter}=planted"}},
                "/catalog/uri: must have no secret among its parameters, since errors show the address: put the "
                "password into /catalog/password, and leave out sslpassword, oauth_client_secret, scram_client_key "
                "and scram_server_key",
            )
            for parameter in (
                "pass%77ord",
                "sslpass%77ord",
                "oauth_client_secret",
                "scram_client_key",
                "sslmode=require&scram_server_key",
            )
        ),
        ({**REST, "bucket": "s3://b"}, "/bucket: must be a name, without a slash"),
        ({**LOCAL, "prefix": "a#b"}, "/prefix: must not contain # or ?"),
        ({**GLUE, "region": ""}, "/region: is required by AWS Glue"),
        (
            {**IAM, "credentials": without(IAM["credentials"], "aws_secret_access_key")},
            "/credentials: has no credentials: Flow's runtime adds them when it assumes the role. Outside of Flow, "
            "set auth_type to AWSAccessKey or AWSRole",
        ),
        (
            {**GLUE, "catalog": {"catalog_type": "AWS Glue", "properties": {"glue.skip-archiv": "false"}}},
            "/catalog/properties/glue.skip-archiv: is not a property that PyIceberg reads here; did you mean "
            "glue.skip-archive?",
        ),
        (with_advanced(nanosecond_timestamps=1), "/advanced/nanosecond_timestamps: must be true or false"),
        (with_advanced(feature_flags=True), "/advanced/feature_flags: must be a string"),
        (with_advanced(format_version=4), "/advanced/format_version: must be one of 2, 3"),
        (with_advanced(format_version=1.0), "/advanced/format_version: must be one of 2, 3"),
        (
            with_advanced(schema_evolution="fool"),
            "/advanced/schema_evolution: must be one of 'strict', 'add_columns', 'full'",
        ),
        ({**LOCAL, "NAMESPACES": "n"}, "/NAMESPACES: is not a known property; did you mean namespace?"),
        (
            with_advanced(xyz=1),
            "/advanced/xyz: is not a known property; the known properties are feature_flags, "
            "nanosecond_timestamps, variant_columns, spark, max_waiting_commits, max_waiting_bytes, schema_evolution, "
            "format_version, field_name_case, table_identifier_case, commit_after_rows, commit_after_bytes, metrics",
        ),
    ],
)
def test_one_mistake_is_one_complaint(endpoint: Json, complaint: str) -> None:
    assert complaints(endpoint) == [complaint]


@pytest.mark.parametrize(
    ("endpoint", "resource", "found"),
    [
        ({"delta_updates": False}, {}, "/delta_updates: {}; set /delta_updates in the config of a binding"),
        (
            {"commit_after_rows": 1},
            {},
            "/commit_after_rows: {}; set /advanced/commit_after_rows in the endpoint config",
        ),
        ({}, {"hard_delete": True}, "bindings[0] /hard_delete: {}; set /hard_delete in the endpoint config"),
        (
            {},
            {"max_waiting_bytes": 1},
            "bindings[0] /max_waiting_bytes: {}; set /advanced/max_waiting_bytes in the endpoint config",
        ),
        ({"advanced": {"hard_delete": True}}, {}, "/advanced/hard_delete: {}; set /hard_delete in the endpoint config"),
        (
            {"advanced": {"delta_updates": False}},
            {},
            "/advanced/delta_updates: {}; set /delta_updates in the config of a binding",
        ),
        (
            {"schema_evolution": "full"},
            {},
            "/schema_evolution: {}; set /advanced/schema_evolution in the endpoint config",
        ),
    ],
)
def test_a_property_in_the_wrong_place_is_told_the_right_one(endpoint: Json, resource: Json, found: str) -> None:
    said = complaints({**LOCAL, **endpoint}, {"table": "t", **resource})
    assert said == [found.format("is not a known property here")]


@pytest.mark.parametrize("choice", [{}, {"catalog_type": "local"}, {"catalog_type": ["Local"]}])
def test_a_catalog_that_is_none_of_the_choices_is_told_them(choice: Json) -> None:
    assert complaints({**LOCAL, "catalog": choice}) == [
        "/catalog/catalog_type: must be one of 'Iceberg REST Server', 'AWS Glue', 'Amazon S3 Tables', 'SQL', "
        "'Hive Metastore', 'Local'"
    ]


def test_only_the_chosen_catalog_says_what_it_misses() -> None:
    assert complaints(with_catalog(glue_id="1")) == [
        "/catalog/glue_id: is not a known property; the known properties are catalog_type, warehouse"
    ]


def test_settings_of_another_way_to_sign_in_are_refused() -> None:
    credentials = {**IAM["credentials"], "awsAccessKeyId": "id"}
    assert complaints({**IAM, "credentials": credentials}) == [
        "/credentials/awsAccessKeyId: is not a known property; did you mean aws_access_key_id?"
    ]


def planted(value: Json, secret: str) -> Iterator[Json]:
    """The config with the secret in every place, in shapes that fit and in shapes that do not."""
    yield from (secret, [secret], {"name": secret}, {"name": {"deeper": secret}})
    if isinstance(value, dict):
        for name in value:
            for member in planted(value[name], secret):
                yield {**value, name: member}


def test_a_secret_in_any_place_is_never_repeated() -> None:
    secret = "planted.#/?secret"
    errors = [error for base in (EVERYTHING, IAM) for endpoint in planted(base, secret) if (error := refusal(endpoint))]
    # A feature flag is no secret: the error names the one that it does not know.
    assert [error for error in errors if secret in error] == [
        f"/advanced/feature_flags: {secret!r} is not a feature flag: correct or remove it; the feature flags are "
        f"{', '.join(FEATURE_FLAGS)}"
    ]
    assert len(errors) > 100


def refusal(endpoint: Json) -> str:
    try:
        parse(endpoint, [])
    except InvalidConfigError as error:
        return str(error)
    return ""


@pytest.mark.parametrize("schema", [ENDPOINT_SCHEMA, RESOURCE_SCHEMA])
def test_every_keyword_that_can_complain_does_so_in_our_words(schema: Json) -> None:
    jsonschema.Draft202012Validator.check_schema(schema)
    judging = set(jsonschema.Draft202012Validator.VALIDATORS)
    # Properties and items complain only through their members; a branch is chosen by its `const`; durations are
    # config_values'.
    through_others = {"properties", "patternProperties", "items", "const", "format"}
    assert (set(keywords(schema)) & judging) - set(KEYWORDS) <= through_others


def keywords(schema: Json) -> Iterator[str]:
    yield from schema
    for subschema in schema.get("properties", {}).values():
        yield from keywords(subschema)
    for subschema in (*schema.get("oneOf", ()), *schema.get("patternProperties", {}).values()):
        yield from keywords(subschema)
    for keyword in ("propertyNames", "additionalProperties", "items"):
        if isinstance(schema.get(keyword), dict):
            yield from keywords(schema[keyword])


@pytest.mark.parametrize(
    ("text", "interval"),
    [
        ("PT5M", timedelta(minutes=5)),
        ("PT4H", timedelta(hours=4)),
        ("PT240M", timedelta(hours=4)),
        ("PT0S", timedelta()),
        ("PT0.5H", timedelta(minutes=30)),
        ("PT1H2M3S", timedelta(hours=1, minutes=2, seconds=3)),
        ("P0DT0H5M0.000000S", timedelta(minutes=5)),
        ("", timedelta(minutes=5)),
    ],
)
def test_an_upload_interval_is_an_iso_8601_time(text: str, interval: timedelta) -> None:
    assert parse({**LOCAL, "upload_interval": text}, [])[0].upload_interval == interval


@pytest.mark.parametrize(
    "text",
    [
        *("PT", "P", "5m", "PT5", "P1D", "P1DT1H", "-PT5M", "PT-5M", "PT4H1S", "PT99999999999999H", "pt5m", "PTM"),
        *("P0DT", "P1M", "P1Y", "P0000-00-00T00:05:00", "P9999999999D", "+PT5M"),
    ],
)
def test_another_upload_interval_is_refused(text: str) -> None:
    (complaint,) = complaints({**LOCAL, "upload_interval": text})
    assert complaint.startswith("/upload_interval: must be a duration")


@pytest.mark.parametrize(
    ("text", "on"),
    [
        ("", set()),
        (" , ", set()),
        (",".join(FEATURE_FLAGS), set(FEATURE_FLAGS)),
        (f" {FEATURE_FLAGS[1]} ,", {FEATURE_FLAGS[1]}),
        (f"no_{FEATURE_FLAGS[0]}", set()),
        (f"{FEATURE_FLAGS[0]},no_{FEATURE_FLAGS[0]}", set()),
        (f"no_{FEATURE_FLAGS[0]},{FEATURE_FLAGS[0]}", {FEATURE_FLAGS[0]}),
    ],
)
def test_a_feature_flag_is_on_unless_no_stands_before_it(text: str, on: set[str]) -> None:
    assert parse(with_advanced(feature_flags=text), [])[0].advanced.feature_flags == on


@pytest.mark.parametrize(
    "flag",
    [
        "allow_existing_tables_for_new_bindings",
        "nested_dot_hash_location_style",
        "retain_existing_data_on_backfill",
    ],
)
def test_the_feature_flags_of_the_public_connector_are_accepted(flag: str) -> None:
    assert parse(with_advanced(feature_flags=flag), [])[0].advanced.feature_flags == {flag}
    assert parse(with_advanced(feature_flags=f"no_{flag}"), [])[0].advanced.feature_flags == set()


@pytest.mark.parametrize(
    ("text", "directory"),
    [
        ("/data/wh", "/data/wh"),
        ("/data/x/../wh/", "/data/wh"),
        ("file:///data/wh", "/data/wh"),
        ("file:/data/wh", "/data/wh"),
        ("file://localhost/data/wh", "/data/wh"),
    ],
)
def test_a_warehouse_is_a_path_or_a_file_uri(text: str, directory: str) -> None:
    assert parse(with_catalog(warehouse=text), [])[0].catalog == LocalCatalog(Path(directory))


def test_a_relative_warehouse_is_below_the_working_directory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    assert parse(with_catalog(warehouse="wh"), [])[0].catalog == LocalCatalog(tmp_path / "wh")


@pytest.mark.parametrize("text", ["s3://b/wh", "file://host/wh", "file:wh", "/data/a#b", "/data/a?b"])
def test_another_warehouse_is_refused(text: str) -> None:
    (complaint,) = complaints(with_catalog(warehouse=text))
    assert complaint.startswith("/catalog/warehouse: must be a directory")


def test_a_rest_warehouse_is_a_name_and_no_directory() -> None:
    catalog = parse({**REST, "catalog": {**REST["catalog"], "warehouse": "s3://b/wh"}}, [])[0].catalog
    assert catalog == RestCatalog("https://host/catalog", "s3://b/wh")


def test_a_resource_path_is_lower_cased_and_its_own_namespace_wins() -> None:
    endpoint, (own, other) = parse({**LOCAL, "namespace": "NS"}, [{"table": "TÄ"}, {"table": "b", "namespace": "Own"}])
    assert resource_path(endpoint, own) == ("ns", "tä")
    assert resource_path(endpoint, other) == ("own", "b")


@pytest.mark.parametrize(
    ("case", "path"),
    [("lowercase", ("shop", "orders")), ("uppercase", ("SHOP", "ORDERS")), ("preserve", ("Shop", "Orders"))],
)
def test_namespaces_and_tables_have_the_case_of_the_setting(case: str, path: tuple[str, str]) -> None:
    config = {**with_advanced(table_identifier_case=case), "namespace": "Shop"}
    endpoint, [resource] = parse(config, [{"table": "Orders"}])
    assert resource_path(endpoint, resource) == path
    assert parse_table("Shop.Orders", endpoint) == path


ON_HIVE: Json = {**GLUE, "catalog": {"catalog_type": "Hive Metastore", "uri": "thrift://metastore:9083"}}


@pytest.mark.parametrize("endpoint", [GLUE, S3_TABLES, ON_HIVE])
def test_a_catalog_that_keeps_lower_case_only_refuses_other_names(endpoint: Json) -> None:
    [complaint] = complaints({**endpoint, "advanced": {"table_identifier_case": "preserve"}})
    assert complaint.startswith("/advanced/table_identifier_case: must be lowercase: ")
    assert complaint.endswith(" keeps names of namespaces and tables in lower case")


def test_a_config_shows_no_secret() -> None:
    endpoint, _ = parse({**EVERYTHING, "advanced": {"spark": {"spark.password": "in the settings"}}}, [])
    shown = f"{endpoint} {endpoint!r}"
    assert "AwsCredentials(access_key_id='id', secret_access_key=***" in shown
    assert not [
        secret for secret in ("'secret'", "client:pass", "bearer", "in the settings", "in a header") if secret in shown
    ]


@pytest.mark.parametrize(
    "catalog",
    [REST["catalog"], {"catalog_type": "AWS Glue"}, {"catalog_type": "Hive Metastore", "uri": "thrift://metastore"}],
)
def test_a_catalog_shows_no_password_of_a_proxy(catalog: Json) -> None:
    proxy = {"s3.proxy-uri": "http://user:planted@proxy"}
    endpoint, _ = parse({**GLUE, "catalog": {**catalog, "properties": proxy}}, [])
    assert "planted" not in repr(endpoint)


def test_no_serializer_writes_a_secret() -> None:
    credentials = AwsCredentials("id", Secret("hidden"))
    assert credentials.secret_access_key.reveal() == "hidden"
    for write in (orjson.dumps, msgspec.json.encode):
        with pytest.raises(TypeError):
            write(credentials)


def test_commits_are_triggered_by_128_mib_and_by_no_number_of_rows_unless_told() -> None:
    advanced = parse(LOCAL, [])[0].advanced
    assert (advanced.commit_after_rows, advanced.commit_after_bytes) == (None, 128 << 20)
    advanced = parse(with_advanced(commit_after_rows=1, commit_after_bytes=1), [])[0].advanced
    assert (advanced.commit_after_rows, advanced.commit_after_bytes) == (1, 1)
