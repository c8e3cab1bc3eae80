"""The words in errors of REST catalogs: how a catalog is called, and which of its settings may be wrong."""

from collections.abc import Mapping
from typing import Final

from connector.config.catalog import RestCatalog, S3TablesCatalog
from connector.config.catalog_properties import is_signed

# The words for the catalog, for the settings that may be wrong, for the user that may lack a permission, and for the
# cause of an error of the server itself.
REST_WORDS: Final[Mapping[str, str]] = {
    "catalog": "the REST catalog",
    "uri": "/catalog/uri",
    "warehouse": "/catalog/warehouse, and /catalog/uri, which must end before /v1",
    "sign_in": "/catalog/credential, /catalog/token and /catalog/scope",
    "principal": "the credential's principal",
    "outage": "If this repeats, see the catalog's own log: for example, its database may be down, or the server may "
    "not be allowed to use /bucket.",
}
GOOGLE_WORDS: Final[Mapping[str, str]] = {
    **REST_WORDS,
    "sign_in": "/catalog/service_account_json",
    "principal": "the service account",
}
SIGNED_WORDS: Final[Mapping[str, str]] = {
    **REST_WORDS,
    "sign_in": "/credentials",
    "signing": "rest.signing-region and rest.signing-name in /catalog/properties",
    "principal": "the credentials in /credentials",
}
S3_TABLES_WORDS: Final[Mapping[str, str]] = {
    **SIGNED_WORDS,
    "catalog": "Amazon S3 Tables",
    "uri": "/catalog/table_bucket_arn",
    "warehouse": "/catalog/table_bucket_arn",
    "signing": "the region in /catalog/table_bucket_arn",
    "outage": "If this repeats, see the state of AWS services in this region.",
}


def choose_words(catalog: RestCatalog | S3TablesCatalog) -> Mapping[str, str]:
    """Return the words for the way in which requests to this catalog are signed in."""
    if isinstance(catalog, S3TablesCatalog):
        return S3_TABLES_WORDS
    if is_signed(catalog.properties):
        return SIGNED_WORDS
    return GOOGLE_WORDS if catalog.has_google_sign_in else REST_WORDS
