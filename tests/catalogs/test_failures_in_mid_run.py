"""What was right when the session opened fails in the middle of it: the error says what, and nothing is lost or
doubled."""

import json
import re
import uuid
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from http import HTTPStatus
from typing import Final

import pytest
from pyiceberg.catalog import Catalog

from connector.config.settings import parse
from connector.host.errors import ConnectorError, UserError
from connector.iceberg.catalogs import retry_after
from connector.iceberg.catalogs.opening import open_catalog, table_location
from connector.iceberg.commits import commit
from connector.iceberg.commits.commit_outcomes import Committed, Failed, Outcome
from connector.model.state import StagedCommit, WriterId
from connector.model.table_identifier import TableIdentifier
from connector.storage import arrow_file_io
from protocol.flow import WHOLE_RANGE
from support.rows.staged_files import stage
from support.servers.endpoint_configs import glue, on_s3, rest
from support.servers.fault_proxy import GENUINE, Answer, Fault, FaultProxy, always, fault_proxy
from support.servers.odd_servers import answering
from support.servers.rest_catalog import RestCatalogOnS3
from support.servers.s3_server import Keys, S3Server
from support.snapshots import check_text
from support.tables.local_tables import ID_ONLY, foreign_table, ids_of
from support.tables.outcomes import try_commits

pytestmark = pytest.mark.catalog

# How long it took, and what the clients say of a connection that has ended.
VARYING: Final = {
    r"for \d+ s": "for N s",
    r" \(Request ID: \w+\)": "",
    r"ConnectionError: .*?\)\)\)": "ConnectionError: …)",
    r"curlCode: .*?\)\. Check": "curlCode: …). Check",
}
WRITER: Final = WriterId("acme/warehouse", "orders.v1", WHOLE_RANGE.key_range)


@dataclass(frozen=True)
class Session:
    """A session's catalog, a transaction that it has staged, and what stands between it and its servers."""

    catalog: Catalog
    staged: StagedCommit
    to_catalog: FaultProxy
    to_store: FaultProxy
    user: Keys
    server: RestCatalogOnS3

    def commit(self) -> Outcome:
        """The first attempt, and no other."""
        with pytest.MonkeyPatch.context() as patch:
            patch.setattr(commit, "RETRY_FOR", 0.0)
            (outcome,) = try_commits(self.catalog, [self.staged])
        return outcome

    def text(self, error: ConnectorError) -> str:
        """Without what differs from run to run."""
        text = str(error).replace(self.staged.path[0], "shop").replace(self.server.bucket, "BUCKET")
        for varying, placeholder in VARYING.items():
            text = re.sub(varying, placeholder, text)
        return text


@pytest.fixture(autouse=True)
def _no_repeated_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(retry_after, "PAUSES", ())
    monkeypatch.setattr(arrow_file_io, "ATTEMPTS", 1)


@pytest.fixture
def session(rest_on_s3: RestCatalogOnS3) -> Iterator[Session]:
    s3, path = rest_on_s3.s3, (f"shop_{uuid.uuid4().hex}", "orders")
    with fault_proxy(rest_on_s3.uri) as to_catalog, fault_proxy(s3.endpoint) as to_store:
        user = s3.new_user("admin")
        keys = {
            "auth_type": "AWSAccessKey",
            "awsAccessKeyId": user.access_key_id,
            "awsSecretAccessKey": user.secret_access_key,
        }
        config = on_s3(s3, rest_on_s3.bucket, path[0], rest(to_catalog.uri))
        with open_catalog(parse({**config, "s3_endpoint": to_store.uri, "credentials": keys}, [])[0]) as catalog:
            foreign_table(catalog, path)
            staged = stage(catalog, TableIdentifier(*path), WRITER, 1, 2)
            yield Session(catalog, staged, to_catalog, to_store, user, rest_on_s3)


def of_catalog(session: Session) -> FaultProxy:
    return session.to_catalog


def of_store(session: Session) -> FaultProxy:
    return session.to_store


FAILURES: Final[Mapping[str, tuple[Callable[[Session], FaultProxy], Answer | HTTPStatus]]] = {
    "the catalog goes down": (of_catalog, Answer.NONE),
    "the catalog is restarting": (of_catalog, HTTPStatus.SERVICE_UNAVAILABLE),
    "the catalog's token is revoked": (of_catalog, HTTPStatus.UNAUTHORIZED),
    "the catalog does not like the request": (of_catalog, HTTPStatus.BAD_REQUEST),
    "a load balancer answers for the catalog": (of_catalog, HTTPStatus.NOT_FOUND),
    "the permission is taken away": (of_catalog, HTTPStatus.FORBIDDEN),
    "the store goes down": (of_store, Answer.NONE),
    "the store's permission is taken away": (of_store, HTTPStatus.FORBIDDEN),
}


@pytest.mark.parametrize("name", FAILURES)
def test_a_failure_in_mid_run_is_told_and_loses_nothing(session: Session, name: str) -> None:
    failing, answer = FAILURES[name]
    proxy = failing(session)
    proxy.choose = always(Fault(0, answer))
    outcome = session.commit()
    assert isinstance(outcome, Failed)
    check_text("mid_run_errors", name, session.text(outcome.error))
    proxy.choose = lambda _: GENUINE
    assert isinstance(session.commit(), Committed)
    assert ids_of(session.catalog, session.staged.path) == [1, 2]


def test_keys_that_are_revoked_in_mid_run_are_told_and_others_finish_what_they_staged(session: Session) -> None:
    session.server.s3.delete_user(session.user)
    outcome = session.commit()
    assert isinstance(outcome, Failed)
    check_text("mid_run_errors", "the store's keys are revoked", session.text(outcome.error))
    with session.server.client() as catalog:
        commit.commit_all_or_raise(catalog, [session.staged])
        assert ids_of(catalog, session.staged.path) == [1, 2]


@pytest.mark.parametrize(
    ("name", "code"),
    [
        ("Glue's credentials are revoked", "UnrecognizedClientException"),
        ("Glue's permission is taken away", "AccessDeniedException"),
        ("Glue does not like the request", "InvalidInputException"),
    ],
)
def test_what_glue_refuses_in_mid_run_is_told_and_loses_nothing(
    s3_server: S3Server, glue_uri: str, monkeypatch: pytest.MonkeyPatch, name: str, code: str
) -> None:
    path = TableIdentifier(f"shop_{uuid.uuid4().hex}", "orders")
    endpoint = parse(on_s3(s3_server, s3_server.new_bucket(), path[0], glue()), [])[0]
    monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", glue_uri)
    with open_catalog(endpoint) as catalog:
        catalog.create_namespace(path[0])
        catalog.create_table(path, ID_ONLY, location=table_location(endpoint, path))
        staged = stage(catalog, path, WRITER, 1, 2)
        with answering(400, json.dumps({"__type": code, "message": "No."})) as server:
            monkeypatch.setenv("AWS_ENDPOINT_URL_GLUE", server.uri)
            with open_catalog(endpoint) as refusing, pytest.raises(UserError) as error:
                commit.commit_all_or_raise(refusing, [staged])
        check_text("mid_run_errors", name, str(error.value).replace(path[0], "shop"))
        commit.commit_all_or_raise(catalog, [staged])
        assert ids_of(catalog, path) == [1, 2]
