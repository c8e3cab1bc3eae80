"""What a cluster is told of this process, and what is said of a cluster that cannot be used."""

import socket
from contextlib import closing
from pathlib import Path

import pytest

from connector.host.errors import RetryableError, UserError
from connector.spark.jobs.write_job import open_claim_server
from connector.spark.jvm.cluster import check_master, find_driver_host, make_cluster_settings, write_addresses
from support.jars import leave_out
from support.servers.server_process import free_address
from support.snapshots import check_text

MASTER = {"spark.master": "spark://127.0.0.1:7077"}


def test_the_cluster_finds_us_at_the_address_from_which_we_find_it() -> None:
    assert find_driver_host(MASTER) == "127.0.0.1"
    assert make_cluster_settings(MASTER)["spark.driver.host"] == "127.0.0.1"


def test_the_cluster_finds_us_where_the_config_says() -> None:
    assert find_driver_host({**MASTER, "spark.driver.host": "203.0.113.1"}) == "203.0.113.1"


ON_IPV6 = {"spark.master": "spark://[::1]:7077"}


@pytest.fixture
def ipv6() -> None:
    """Leaves the test out on a machine without IPv6."""
    try:
        socket.create_server(("::1", 0), family=socket.AF_INET6).close()
    except OSError:
        leave_out("needs IPv6")


@pytest.mark.usefixtures("ipv6")
def test_a_cluster_with_an_ipv6_address_finds_us_at_ours() -> None:
    assert find_driver_host(ON_IPV6) == "::1"
    assert make_cluster_settings(ON_IPV6)["spark.driver.host"] == "[::1]", "as Spark writes it"


@pytest.mark.usefixtures("ipv6")
@pytest.mark.parametrize(
    "more", [{}, {"spark.driver.host": "[::1]"}, {"spark.driver.host": "::1"}, {"spark.driver.bindAddress": "[::]"}]
)
def test_tasks_are_listened_for_at_an_ipv6_address(more: dict[str, str], tmp_path: Path) -> None:
    with closing(open_claim_server({**ON_IPV6, **more}, tmp_path / "claims")) as claims:
        assert isinstance(claims.address.socket, tuple)
        assert claims.address.socket[0] == "::1"
        socket.create_connection(claims.address.socket).close()


@pytest.mark.parametrize("address", ["::1", "[::1]"])
@pytest.mark.parametrize("setting", ["spark.driver.host", "spark.driver.bindAddress"])
def test_spark_gets_our_ipv6_address_in_brackets(setting: str, address: str) -> None:
    """It refuses any other."""
    assert write_addresses({**MASTER, setting: address}) == {**MASTER, setting: "[::1]"}


@pytest.mark.parametrize("master", ["yarn", "k8s://https://10.0.0.1:6443"])
def test_a_machine_whose_name_leads_to_itself_needs_an_address(master: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Debian gives 127.0.1.1 to the name of a machine. Other machines would look for us on themselves."""
    monkeypatch.setattr(socket, "gethostname", lambda: "127.0.1.1")
    with pytest.raises(UserError) as error:
        check_master({"spark.master": master})
    check_text("machine_errors", "a machine without an address for its cluster", str(error.value), {master: "MASTER"})
    found = check_master({"spark.master": master, "spark.driver.host": "203.0.113.1"})
    assert found == f"tasks run on {master}; they will find this process at 203.0.113.1"


def test_tasks_are_sent_to_our_address_however_we_are_bound(tmp_path: Path) -> None:
    settings = {**MASTER, "spark.driver.host": "203.0.113.1", "spark.driver.bindAddress": "127.0.0.1"}
    with closing(open_claim_server(settings, tmp_path / "claims")) as claims:
        assert isinstance(claims.address.socket, tuple)
        host, port = claims.address.socket
        assert host == "203.0.113.1"
        socket.create_connection(("127.0.0.1", port)).close()


def test_tasks_on_this_machine_come_to_a_socket_that_no_other_machine_sees(tmp_path: Path) -> None:
    with closing(open_claim_server({"spark.master": "local[2]"}, tmp_path / "claims")) as claims:
        assert claims.address.socket == str(tmp_path / "claims")


@pytest.mark.parametrize(
    ("setting", "value", "what"),
    [
        ("spark.driver.host", "[2001:db8::1]", r"listened for at \[2001:db8::1\]:0"),
        ("spark.master", "spark://127.0.0.1", "write it as spark://host:port"),
        ("spark.materialize.claims.port", "any", "'any', which is no port"),
        ("spark.materialize.claims.port", "70000", "'70000', which is no port"),
        ("spark.driver.host", "203.0.113.1", "or spark.driver.bindAddress"),
    ],
)
def test_an_address_that_cannot_be_used_is_one_clear_error(setting: str, value: str, what: str, tmp_path: Path) -> None:
    with pytest.raises(UserError, match=what):
        open_claim_server({**MASTER, setting: value}, tmp_path / "claims")


def test_a_second_attempt_beside_a_slow_one_is_refused() -> None:
    with pytest.raises(UserError) as error:
        check_master({**MASTER, "spark.speculation": "True"})
    check_text("machine_errors", "a cluster with speculation", str(error.value))
    assert check_master({"spark.speculation": "true"}) == "tasks run on this machine"


@pytest.mark.parametrize("master", ["local", "local[2]", "local[*]", "local[2, 3]"])
def test_a_master_of_this_machine_is_known(master: str) -> None:
    assert check_master({"spark.master": master}) == "tasks run on this machine"


@pytest.mark.parametrize(
    "master",
    [
        "loca[2]",
        "local[x]",
        "local[2",
        "localhost",
        "local-cluster[2,1,1024]",  # only for the tests of Spark itself
        "",
        "spark",
        "http://host:7077",
    ],
)
def test_a_master_that_spark_does_not_know_is_refused_before_a_jvm_starts(master: str) -> None:
    with pytest.raises(UserError, match="which is no master of Spark"):
        check_master({"spark.master": master})


def test_of_several_masters_one_has_to_answer() -> None:
    with closing(socket.create_server(("127.0.0.1", 0))) as master:
        address = f"127.0.0.1:{master.getsockname()[1]}"
        found = check_master({"spark.master": f"spark://{free_address()},{address}"})
    assert found == f"the master at {address} can be reached; tasks will find this process at 127.0.0.1"


def test_where_no_master_answers_each_is_named_with_its_reason() -> None:
    first, second = free_address(), free_address()
    with pytest.raises(RetryableError) as raised:
        check_master({"spark.master": f"spark://{first},{second}"})
    assert f"({first}: Connection refused; {second}: Connection refused)" in str(raised.value)
