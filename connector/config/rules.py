"""All problems of a config at once, by path, without any value that may be secret."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from typing import Any, Final

from connector.config import credential_schemas, values
from connector.config.catalog_names import check_name
from connector.config.catalog_properties import SIGNED, SIGNING_REGION
from connector.config.catalog_schemas import GLUE, HIVE, LOCAL, REST, S3_TABLES, SQL
from connector.config.keywords import ConfigValidator
from connector.config.problem import Place, Problem, at
from connector.config.schema import ENDPOINT_SCHEMA, RESOURCE_SCHEMA
from connector.config.storage_rules import storage_problems
from connector.config.values import MACHINE_CREDENTIALS
from protocol.flow import Json


def endpoint_problems(config: Json) -> list[Problem]:
    found = _schema_problems(config, ENDPOINT_SCHEMA)
    further = [
        *_value_problems(config, found),
        *_store_problems(config),
        *_key_problems(config),
        *_token_problems(config),
        *_signature_problems(config),
    ]
    further += storage_problems(
        config, chosen_catalog(config), allows_machine_credentials=_allows_machine_credentials(config)
    )
    further += _name_problems(config, ("namespace",), chosen_catalog(config))
    return _besides(found, further)


def resource_problems(config: Json, catalog_type: Json) -> list[Problem]:
    """The problems of a binding's config, given the type of the catalog that its table is to be in."""
    found = _schema_problems(config, RESOURCE_SCHEMA)
    return _besides(found, _name_problems(config, ("table", "namespace"), catalog_type))


def _besides(found: list[Problem], further: Iterable[Problem]) -> list[Problem]:
    return found + [problem for problem in further if not any(first.touches(problem.path) for first in found)]


def _name_problems(config: Json, properties: Iterable[str], catalog_type: Json) -> Iterator[Problem]:
    for name in properties:
        value = at(config, name)
        if not value or not isinstance(value, str):
            continue
        try:
            check_name(catalog_type, value)
        except ValueError as error:
            yield Problem((name,), str(error))


def _schema_problems(config: Json, schema: Json) -> list[Problem]:
    if config is None:
        return [Problem((), "the config is missing")]
    return [Problem(tuple(error.absolute_path), error.message) for error in ConfigValidator(schema).iter_errors(config)]


MEANINGS: Final[Mapping[Place, Callable[[Any], object]]] = {
    ("upload_interval",): values.upload_interval,
    ("storage", "directory"): values.warehouse_directory,
    ("storage", "account_key"): values.azure_account_key,
    ("storage", "service_account_json"): values.service_account,
    ("advanced", "feature_flags"): values.feature_flags,
    ("advanced", "nanosecond_timestamps"): values.not_yet_available,
    ("advanced", "variant_columns"): values.not_yet_available,
}
LOCAL_MEANINGS: Final[Mapping[Place, Callable[[Any], object]]] = {
    ("catalog", "warehouse"): values.warehouse_directory,
}


def _value_problems(config: Json, found: list[Problem]) -> Iterator[Problem]:
    meanings = {**MEANINGS, **LOCAL_MEANINGS} if chosen_catalog(config) == LOCAL else MEANINGS
    for path, meaning in meanings.items():
        value = at(config, *path)
        if not value or any(problem.touches(path) for problem in found):
            continue
        try:
            meaning(value)
        except ValueError as error:
            yield Problem(path, str(error))
        except (TypeError, AttributeError):
            continue  # not even a string, in a branch that nobody has chosen yet: that is a problem of its own


# What one property demands of others; the schemas could say it only in forms that Flow's UI does not show.
NEEDED_BY: Final[Mapping[str, Sequence[str]]] = {
    GLUE: ("credentials", "bucket", "region"),
    S3_TABLES: ("credentials",),
    SQL: ("credentials", "bucket", "region"),
    HIVE: ("credentials", "bucket", "region"),
}


def _store_problems(config: Json) -> Iterator[Problem]:
    catalog_type = chosen_catalog(config)
    if catalog_type in (SQL, HIVE) and at(config, "storage") is not None:
        return
    has_keys = _has_aws_keys(config)
    for name in NEEDED_BY.get(catalog_type, ()) if isinstance(catalog_type, str) else ():
        if not at(config, name) and not (name == "credentials" and has_keys):
            yield Problem((name,), f"is required by {catalog_type}")


def _signature_problems(config: Json) -> Iterator[Problem]:
    properties = at(config, "catalog", "properties")
    if chosen_catalog(config) != REST or str(at(properties, SIGNED)).lower() != "true":
        return
    if not _has_aws_keys(config) and not at(config, "credentials"):
        yield Problem(("credentials",), f"is required by {SIGNED}")
    if not at(properties, SIGNING_REGION) and not at(config, "region"):
        yield Problem(("catalog", "properties", SIGNING_REGION), f"is required by {SIGNED} without a /region")


def _has_aws_keys(config: Json) -> bool:
    """Whether there are keys even without `credentials`."""
    return _allows_machine_credentials(config) or any(at(config, name) for name in KEY_PAIR)


def _key_problems(config: Json) -> Iterator[Problem]:
    match at(config, "credentials", "auth_type"):
        case credential_schemas.AWS_IAM:
            if not all(at(config, "credentials", name) for name in KEY_PAIR):
                yield Problem(("credentials",), "lacks the keys that the runtime adds when it has assumed the role")
        case credential_schemas.AWS_ROLE:
            for name in ("awsAccessKeyId", "awsSecretAccessKey"):
                if not at(config, "credentials", name) and not _allows_machine_credentials(config):
                    yield Problem(("credentials", name), f"is required without the feature flag {MACHINE_CREDENTIALS}")
        case None:
            for name, other in (KEY_PAIR, KEY_PAIR[::-1]):
                if at(config, other) and not at(config, name):
                    yield Problem((name,), f"is required beside {other}")


def _token_problems(config: Json) -> Iterator[Problem]:
    keys = at(config, "credentials")
    is_temporary = str(at(keys, "awsAccessKeyId")).startswith(credential_schemas.TEMPORARY)
    if at(keys, "auth_type") == credential_schemas.AWS_ACCESS_KEY and is_temporary and not at(keys, "awsSessionToken"):
        yield Problem(
            ("credentials", "awsSessionToken"),
            f"is required by temporary keys, whose ids begin with {credential_schemas.TEMPORARY}",
        )


def _allows_machine_credentials(config: Json) -> bool:
    try:
        return MACHINE_CREDENTIALS in values.feature_flags(at(config, "advanced", "feature_flags") or "")
    except (ValueError, AttributeError):  # a problem of its own
        return False


KEY_PAIR: Final = ("aws_access_key_id", "aws_secret_access_key")


def chosen_catalog(config: Json) -> Json:
    return GLUE if at(config, "catalog") is None else at(config, "catalog", "catalog_type")
