"""A session whose only way to the object store is a proxy of the environment."""

from pathlib import Path

import pytest

from support.servers.certificate import new_certificate
from support.servers.endpoint_configs import glue
from support.servers.forward_proxy import forward_proxy
from support.servers.s3_server import S3Server
from support.sessions.runtime import LEDGER, Runtime

# Slow: tests/storage/test_s3_environment.py shows each client, and that workers get the environment.
pytestmark = [pytest.mark.catalog, pytest.mark.spark, pytest.mark.slow]


def test_a_session_and_its_workers_use_the_proxy_and_the_certificates(
    glue_uri: str, s3_server: S3Server, bucket: str, tmp_path: Path
) -> None:
    certificate = new_certificate(tmp_path)
    keys = {
        "auth_type": "AWSAccessKey",
        "awsAccessKeyId": s3_server.root.access_key_id,
        "awsSecretAccessKey": s3_server.root.secret_access_key,
    }
    config = {
        "namespace": "behind_a_proxy",
        "region": s3_server.region,
        "catalog": glue(),
        "credentials": keys,
        "bucket": bucket,
        "s3_endpoint": "https://127.0.0.1:1",  # only the proxy answers for it
    }
    with forward_proxy(s3_server.endpoint, certificate) as proxy:
        environment = {
            "AWS_ENDPOINT_URL_GLUE": glue_uri,
            "HTTPS_PROXY": proxy.uri,
            "NO_PROXY": "",
            "no_proxy": "",
            "AWS_CA_BUNDLE": str(certificate.certificate),
        }
        runtime = Runtime(tmp_path, [LEDGER], config=config, environment=environment)
        runtime.apply()
        with runtime.open() as session:
            session.flush()
            session.store({"id": 1, "note": "a"})
            session.start_commit()
            session.acknowledge()
            assert session.finish().status == 0
    assert set(proxy.hosts) == {"127.0.0.1:1"}
