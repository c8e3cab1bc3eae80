"""What texts in a config have to look like."""

from collections.abc import Mapping
from typing import Final

WITHOUT_DOTS: Final = "^[^.]*$"
WITHOUT_SLASHES: Final = "^[^/]*$"
WITHOUT_URI_SIGNS: Final = "^[^#?]*$"
HTTP_ADDRESS: Final = "^https?://"
SPARK_SETTING: Final = r"^spark\."

# What a pattern demands, in the words of an error.
PATTERN_DEMANDS: Final[Mapping[str, str]] = {
    WITHOUT_DOTS: "must not contain a dot",
    WITHOUT_SLASHES: "must be a name, without a slash",
    # PyIceberg takes a location for a URI: it would write to the part before the sign.
    WITHOUT_URI_SIGNS: "must not contain # or ?",
    HTTP_ADDRESS: "must begin with http:// or https://",
    SPARK_SETTING: "must be a setting whose name begins with spark.",
}
