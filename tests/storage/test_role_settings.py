"""Settings of a role with which AWS is not even asked are named."""

from typing import Final

import pytest

from connector.config.settings import parse
from connector.host.errors import UserError
from connector.storage.store_properties import data_file_properties
from protocol.flow import Json
from support.snapshots import check_text

ROLE: Final = {
    "auth_type": "AWSRole",
    "aws_role_arn": "arn:aws:iam::123456789012:role/flow",
    "awsAccessKeyId": "id",
    "awsSecretAccessKey": "planted",
}


@pytest.mark.parametrize(
    ("name", "region", "changed"),
    [
        ("a region that is none", "eu_west_1", {}),
        ("a session name that is too short", "eu-west-1", {"role_session_name": "f"}),
        ("an external id that is too short", "eu-west-1", {"external_id": "f"}),
    ],
)
def test_a_setting_of_a_role_that_cannot_be_is_named(name: str, region: str, changed: Json) -> None:
    config = {"namespace": "shop", "bucket": "lake", "region": region, "credentials": {**ROLE, **changed}}
    with pytest.raises(UserError) as raised:
        data_file_properties(parse(config, [])[0])
    assert "planted" not in str(raised.value)
    check_text("catalog_errors", f"AWS STS: {name}", str(raised.value))
