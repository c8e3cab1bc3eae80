"""What a config says arrives as values."""

from datetime import timedelta
from pathlib import Path

import pytest

from config.configs import EVERYTHING, GLUE, LOCAL, REST, S3_TABLES, complaints, with_advanced, with_catalog
from connector.cli.task_tables import parse_table
from connector.config.addresses import HTTP_DEMAND, PARAMETERS_DEMAND
from connector.config.advanced_options import AdvancedOptions
from connector.config.catalog import GlueCatalog, HiveCatalog, LocalCatalog, RestCatalog, S3TablesCatalog, SqlCatalog
from connector.config.credentials import AwsCredentials
from connector.config.endpoint_config import EndpointConfig, Notification
from connector.config.resource_config import ResourceConfig
from connector.config.secret import Secret
from connector.config.settings import parse, resource_path
from connector.config.storage import S3Storage
from connector.config.values import FEATURE_FLAGS, RETAIN_EXISTING_DATA, SchemaEvolution
from connector.host.errors import BACKFILL
from connector.model.invalid_values import OnInvalid
from connector.model.properties import Properties
from protocol.flow import Json


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
    "uri", ["https://catalog.cloudflarestorage.com/abc/lake", "https://abc.r2.cloudflarestorage.com/lake"]
)
@pytest.mark.parametrize(
    ("prefix", "expected"),
    [
        ("", "__r2_data_catalog"),
        ("lake/flow", "__r2_data_catalog/lake/flow"),
        ("__r2_data_catalog/lake", "__r2_data_catalog/lake"),
        ("__r2_data_catalog2", "__r2_data_catalog/__r2_data_catalog2"),
    ],
)
def test_files_are_where_the_catalog_of_r2_takes_them(uri: str, prefix: str, expected: str) -> None:
    r2: Json = {"catalog": {**REST["catalog"], "uri": uri}}
    assert parse({**REST, **r2, "prefix": prefix}, [])[0].prefix == expected
    storage: Json = {"storage_type": "Amazon S3", "bucket": "lake", "region": "auto", "prefix": prefix}
    without_bucket: Json = {name: REST[name] for name in ("namespace", "credentials")}
    chosen = parse({**without_bucket, **r2, "storage": storage}, [])[0].storage
    assert isinstance(chosen, S3Storage)
    assert chosen.location == f"s3://lake/{expected}"
    assert parse({**REST, "prefix": prefix}, [])[0].prefix == prefix


@pytest.mark.parametrize(
    ("text", "endpoint"),
    [("HTTP://Store:9000", "http://Store:9000"), ("Https://Store/Path", "https://Store/Path")],
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


@pytest.mark.parametrize("parameter", ["port=5433", "host=other"])
def test_the_server_of_a_database_is_not_among_its_parameters(parameter: str) -> None:
    uri = f"postgresql://me@host/lake?{parameter}"
    [complaint] = complaints({**GLUE, "catalog": {"catalog_type": "SQL", "uri": uri}})
    assert complaint == f"/catalog/uri: {PARAMETERS_DEMAND}"


@pytest.mark.parametrize("uri", ["http://catalog:", "http://catalog:0"])
def test_an_address_has_a_port_or_no_colon_before_one(uri: str) -> None:
    assert complaints({**REST, "catalog": {**REST["catalog"], "uri": uri}}) == [f"/catalog/uri: {HTTP_DEMAND}"]


def test_a_timeout_is_at_most_a_day() -> None:
    def with_timeout(seconds: str) -> Json:
        return {**REST, "catalog": {**REST["catalog"], "properties": {"s3.request-timeout": seconds}}}

    parse(with_timeout("86400"), [])
    [complaint] = complaints(with_timeout("86400.5"))
    assert complaint.startswith("/catalog/properties/s3.request-timeout: must be a number of seconds")


@pytest.mark.parametrize(
    ("address", "expected"),
    [
        ("HTTP://store:9000", "http://store:9000"),
        ("https://[::1]:9000", "https://[::1]:9000"),
        *((address, f"https://{address}") for address in ("store_1:9000", "store.example.com/s3", "[::1]:9000", "b")),
    ],
)
def test_an_s3_endpoint_without_a_scheme_is_one_of_https(address: str, expected: str) -> None:
    endpoint, _ = parse({**GLUE, "s3_endpoint": address}, [])
    assert endpoint.s3_endpoint == expected


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


@pytest.mark.parametrize("named", ["2", "3"])
@pytest.mark.parametrize(
    "advanced", [{}, {"format_version": 2}, {"format_version": 3}, {"nanosecond_timestamps": True}]
)
def test_a_binding_may_name_its_format_version_among_the_table_properties(named: str, advanced: Json) -> None:
    """As in the public connector."""
    [resource] = parse(
        with_advanced(**advanced), [{"table": "t", "additional_table_properties": {"format-version": named}}]
    )[1]
    assert resource.format_version == int(named)


def test_nanoseconds_need_format_version_3_unless_a_binding_says_otherwise() -> None:
    resources = [{"table": "t"}, {"table": "u", "format_version": 2}]
    _, [without, own] = parse(with_advanced(nanosecond_timestamps=True), resources)
    assert (without.format_version, own.format_version) == (3, 2)


def test_a_resource_arrives_with_its_policy_for_invalid_values() -> None:
    _, [resource] = parse(LOCAL, [{"table": "t", "on_invalid": "quarantine", "max_rejected_ratio": 1}])
    assert (resource.on_invalid, resource.max_rejected_ratio) == (OnInvalid.QUARANTINE, 1)


def test_without_a_catalog_it_is_glue() -> None:
    assert parse(GLUE, [])[0].catalog == GlueCatalog()


def test_glue_may_be_another_account() -> None:
    endpoint, _ = parse({**GLUE, "catalog": {"catalog_type": "AWS Glue", "glue_id": "123"}}, [])
    assert endpoint.catalog == GlueCatalog("123")


def test_a_hive_metastore_may_be_several_servers() -> None:
    uri = "thrift://one:9083,thrift://two:9083"
    catalog = {"catalog_type": "Hive Metastore", "uri": uri, "properties": {"ugi": "flow:etl"}}
    assert parse({**GLUE, "catalog": catalog}, [])[0].catalog == HiveCatalog(uri, Properties({"ugi": "flow:etl"}))


def test_a_table_bucket_says_its_region() -> None:
    catalog = parse(S3_TABLES, [])[0].catalog
    assert isinstance(catalog, S3TablesCatalog)
    assert (catalog.region, catalog.uri) == ("eu-west-1", "https://s3tables.eu-west-1.amazonaws.com/iceberg")


def test_an_optional_setting_that_is_empty_in_a_form_is_as_good_as_absent() -> None:
    empty: Json = {**REST["catalog"], "credential": "", "oauth2_server_uri": "", "properties": {}}
    assert parse({**REST, "catalog": empty}, []) == parse(REST, [])
    frequency = {"syncFrequency": "5m"}
    schedule = {**frequency, "timezone": "", "fastSyncStartTime": "", "fastSyncStopTime": ""}
    assert parse({**LOCAL, "syncSchedule": schedule}, []) == parse({**LOCAL, "syncSchedule": frequency}, [])
    assert complaints({**REST, "catalog": {**empty, "uri": ""}}) == ["/catalog/uri: must not be empty"]


ON_AZURE: Json = {
    "namespace": "ns",
    "catalog": {"catalog_type": "SQL", "uri": "postgresql://host/lake"},
    "storage": {"storage_type": "Azure", "account": "lake", "container": "c-1", "account_key": "cGxhbnRlZA=="},
}


@pytest.mark.parametrize(
    ("endpoint", "empty"),
    [
        (LOCAL, {"credentials": {}, "storage": {"credentials": {}}, "notify": {}, "syncSchedule": {"timezone": None}}),
        (LOCAL, {"advanced": {"spark": {}, "metrics": {}}}),
        (ON_AZURE, {"storage": {**ON_AZURE["storage"], "credentials": {}}}),
    ],
)
def test_an_empty_object_of_a_form_is_as_good_as_absent(endpoint: Json, empty: Json) -> None:
    assert parse({**endpoint, **empty}, []) == parse(endpoint, [])


def test_an_empty_object_in_place_of_another_value_is_refused() -> None:
    assert complaints({**GLUE, "bucket": {}, "credentials": {}}, {"table": "t", "sort_by": {}}) == [
        "/bucket: must be a string",
        "/credentials: is required by AWS Glue unless the feature flag use_machine_credentials is on",
        "bindings[0] /sort_by: must be a string",
    ]
    assert complaints({**LOCAL, "advanced": "", "notify": []}) == [
        "/notify: must be an object",
        "/advanced: must be an object",
    ]


def test_an_endpoint_may_have_the_name_of_the_bucket_or_a_path() -> None:
    for address in ("http://b:9000", "https://b:9000", "https://store/storage/v1/s3"):
        endpoint, _ = parse({**GLUE, "s3_endpoint": address}, [])
        assert endpoint.s3_endpoint == address


@pytest.mark.parametrize("address", ["https//minio:9000", "//minio:9000", "minio//x", "http:/minio:9000", "s3://minio"])
def test_an_endpoint_whose_scheme_is_misspelled_is_refused(address: str) -> None:
    [complaint] = complaints({**GLUE, "s3_endpoint": address})
    assert complaint.startswith("/s3_endpoint: must be an address with a host that can exist")


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
        "always_drop_tables_on_backfill",
        "nested_dot_hash_location_style",
        "retain_existing_data_on_backfill",
        "truncate_after_backfill",
    ],
)
def test_the_feature_flags_of_the_public_connector_are_accepted(flag: str) -> None:
    assert parse(with_advanced(feature_flags=flag), [])[0].advanced.feature_flags == {flag}
    assert parse(with_advanced(feature_flags=f"no_{flag}"), [])[0].advanced.feature_flags == set()


def test_advice_that_depends_on_a_feature_flag_has_its_name() -> None:
    assert RETAIN_EXISTING_DATA in BACKFILL.split()


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


def test_commits_are_triggered_by_128_mib_and_by_no_number_of_rows_unless_told() -> None:
    advanced = parse(LOCAL, [])[0].advanced
    assert (advanced.commit_after_rows, advanced.commit_after_bytes) == (None, 128 << 20)
    advanced = parse(with_advanced(commit_after_rows=1, commit_after_bytes=1), [])[0].advanced
    assert (advanced.commit_after_rows, advanced.commit_after_bytes) == (1, 1)
