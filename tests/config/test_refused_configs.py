"""All that is wrong with a config is said at once, by path, and in our words."""

import pytest

from config.configs import GLUE, IAM, LOCAL, REST, S3_TABLES, complaints, with_advanced, with_catalog, without
from connector.config.endpoint_config import ENDPOINT_SCHEMA
from protocol.flow import Json


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
        "allow_existing_tables_for_new_bindings, retain_existing_data_on_backfill, always_drop_tables_on_backfill, "
        "use_machine_credentials, nested_dot_hash_location_style, truncate_after_backfill",
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
        (
            without(S3_TABLES, "credentials"),
            "/credentials: is required by Amazon S3 Tables unless the feature flag use_machine_credentials is on",
        ),
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
                "password",
                "sslmode=require&sslpassword",
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
            "turn on the feature flag use_machine_credentials, or set auth_type to AWSAccessKey or AWSRole",
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
            "/advanced/xyz: is not a known property; the known properties are "
            + ", ".join(ENDPOINT_SCHEMA["properties"]["advanced"]["properties"]),
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


ON_HIVE: Json = {**GLUE, "catalog": {"catalog_type": "Hive Metastore", "uri": "thrift://metastore:9083"}}


@pytest.mark.parametrize("endpoint", [GLUE, S3_TABLES, ON_HIVE])
def test_a_catalog_that_keeps_lower_case_only_refuses_other_names(endpoint: Json) -> None:
    [complaint] = complaints({**endpoint, "advanced": {"table_identifier_case": "preserve"}})
    assert complaint.startswith("/advanced/table_identifier_case: must be lowercase: ")
    assert complaint.endswith(" keeps names of namespaces and tables in lower case")
