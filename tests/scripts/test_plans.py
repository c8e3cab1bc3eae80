"""A test whose fault is not met fails, however the fault was planted."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from http import HTTPStatus
from pathlib import Path
from threading import Thread
from typing import Any, Final

import pytest
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import ServiceUnavailableError

from crash.faults import ALWAYS, Faults
from support.plans import checked_plans, forget_plans, meeting
from support.servers.fault_proxy import Fault, FaultProxy, always, is_commit
from support.servers.metastore_proxy import MetastoreProxy
from support.servers.webhook_server import Answer, webhook_server
from support.tables.planted_faults import plant, plant_always, refuse

FAULT: Final = Fault(0, HTTPStatus.BAD_GATEWAY)
ANY_TABLE: Final[Any] = None
REFUSED: Final = refuse(ServiceUnavailableError("503"))


def commit(catalog: Catalog) -> None:
    with pytest.raises(ServiceUnavailableError):
        catalog.commit_table(ANY_TABLE, (), ())


@contextmanager
def never_met() -> Iterator[None]:
    """What is planted here fails a test."""
    try:
        with pytest.raises(AssertionError, match="was planned, and has not happened"), checked_plans():
            yield
    finally:
        forget_plans()


def at_a_proxy() -> None:
    FaultProxy("http://nowhere").inject(is_commit, FAULT)


def at_a_metastore() -> None:
    MetastoreProxy("thrift://nowhere").inject(lambda _: True, FAULT)


def at_a_proxy_always() -> None:
    FaultProxy("http://nowhere").choose = always(FAULT)


def at_a_webhook() -> None:
    with webhook_server() as server:
        server.answers.append(Answer(500))


def at_a_barrier() -> None:
    meeting(2)


@pytest.mark.parametrize(
    "plan_fault",
    [at_a_proxy, at_a_metastore, at_a_proxy_always, at_a_webhook, at_a_barrier],
    ids=lambda each: each.__name__,
)
def test_a_fault_that_nobody_meets_fails_its_test(plan_fault: Callable[[], None]) -> None:
    with never_met():
        plan_fault()


def test_a_fault_of_a_catalog_that_nobody_meets_fails_its_test(catalog: Catalog) -> None:
    with never_met():
        plant(catalog, [REFUSED])
    with never_met():
        plant_always(catalog, REFUSED)
    with never_met():
        plant(catalog, [REFUSED, REFUSED])
        commit(catalog)


def test_a_function_that_nobody_calls_fails_its_test(monkeypatch: pytest.MonkeyPatch) -> None:
    with never_met():
        monkeypatch.setattr(Path, "exists", lambda _: True)
    with never_met(), monkeypatch.context() as patch:
        patch.setattr("pathlib.Path.is_dir", lambda _: True)


def test_what_has_happened_fails_no_test(catalog: Catalog, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Path, "owner", lambda path: path.name)
    assert Path("somebody").owner() == "somebody"
    plant(catalog, [REFUSED])
    commit(catalog)
    together = meeting(2)
    Thread(target=together.wait).start()
    together.wait()


def test_a_fault_of_a_process_that_did_not_strike_is_found(tmp_path: Path) -> None:
    faults = Faults(tmp_path / "faults")
    faults.arm("twice", times=2)
    faults.arm("always", times=ALWAYS)
    assert faults.strikes("twice")
    assert sorted(faults.unmet()) == ["always", "twice"]
    with pytest.raises(AssertionError, match="has not struck"):
        faults.arm("twice")
    with pytest.raises(AssertionError, match="has not struck"):
        faults.disarm("always")
    assert faults.strikes("twice")
    assert faults.strikes("always")
    assert faults.unmet() == []
    assert not faults.strikes("twice")
