"""Patterns for texts of a config, and the error text of each."""

from collections.abc import Mapping
from typing import Final

WITHOUT_DOTS: Final = "^[^.]*$"
WITHOUT_SLASHES: Final = "^[^/]*$"
WITHOUT_URI_SIGNS: Final = "^[^#?]*$"
HTTP_ADDRESS: Final = "^https?://"
POSTGRESQL: Final = "^postgresql://([^:@/]*@)?[^@/]+/(?!.*[?&](ssl)?password=)[^/]+$"
METASTORES: Final = "^thrift://[^/?#@,]+(,thrift://[^/?#@,]+)*$"
TABLE_BUCKET_ARN: Final = "^arn:aws[-a-z]*:s3tables:[-a-z0-9]+:[0-9]+:bucket/.+$"
HDFS_DIRECTORY: Final = "^hdfs://[^/#?@]+/[^#?]+$"
AZURE_ACCOUNT: Final = "^[a-z0-9]{3,24}$"
AZURE_CONTAINER: Final = "^(?=.{3,63}$)[a-z0-9](-?[a-z0-9])*$"
ROLE_ARN: Final = "^arn:aws[-a-z]*:iam::[0-9]+:role/.+$"
SPARK_SETTING: Final = r"^spark\."


def _in_any_case(expression: str) -> str:
    """Return an expression that ignores case. JSON schemas have no flags for that."""
    return "".join(f"[{sign.upper()}{sign}]" if sign.isalpha() else sign for sign in expression)


# The names of Spark's settings that hold a secret. Spark's own list is shorter.
SECRET_SETTING: Final = "|".join(
    map(_in_any_case, ("secret", "password", "passphrase", "token", "credential$", "access.?key", "account.?key"))
)

# By pattern: what a text must be.
PATTERN_DEMANDS: Final[Mapping[str, str]] = {
    WITHOUT_DOTS: "must not contain a dot",
    WITHOUT_SLASHES: "must be a name, without a slash",
    # PyIceberg reads a location as a URI. It would write to the part before such a character.
    WITHOUT_URI_SIGNS: "must not contain # or ?",
    HTTP_ADDRESS: "must begin with http:// or https://",
    POSTGRESQL: "must be postgresql://user@host/database. Put the password into /catalog/password",
    METASTORES: "must be thrift://host:port, or several of those separated by commas",
    TABLE_BUCKET_ARN: "must be the ARN of a table bucket, such as arn:aws:s3tables:us-east-1:123456789012:bucket/lake",
    HDFS_DIRECTORY: "must be a directory of HDFS, such as hdfs://namenode:8020/lake",
    AZURE_ACCOUNT: "must be the name of a storage account: 3 to 24 lower-case letters and digits",
    AZURE_CONTAINER: "must be the name of a container: 3 to 63 lower-case letters, digits and single hyphens",
    ROLE_ARN: "must be the ARN of a role, such as arn:aws:iam::123456789012:role/flow",
    SPARK_SETTING: "must be a setting whose name begins with spark.",
}
