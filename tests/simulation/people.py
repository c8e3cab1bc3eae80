"""What people do to a task: its user publishes it anew, and its operator lets it go on when it is fenced."""

from contextlib import suppress

from pyiceberg.table import Table

from connector.host.errors import RetryableError, UserError
from connector.iceberg.commits.reset import Decision, perform_reset, plan_reset
from connector.iceberg.commits.verdicts import Verdict, judge_commits
from connector.model.state import StagedCommit
from connector.model.state_reader import read_state
from connector.rpc.apply import apply
from protocol.flow import Materialization
from protocol.request import Apply
from simulation.actors import Actor
from simulation.catalog import SimulatedCatalog
from simulation.lake import BrokenPromiseError
from simulation.network import Network
from simulation.takeovers import Author
from simulation.task import TASK, Row, Task

ANSWERS: int = 3  # of an apply; state in the third one is fatal


def publish(actor: Actor, network: Network, task: Task, new: Materialization, *, tells_state: bool) -> None:
    """As the runtime does it: apply is asked again with the state that it has answered, until it answers with none."""
    actor.catalog = SimulatedCatalog(network, Author(0, "apply"))
    for _ in range(ANSWERS):
        applied = apply(Apply(new, "2", task.published, "1", task.state if tells_state else None))
        actor.pause()
        if applied.action_description:
            actor.tell(f"applies: {applied.action_description}")
        if applied.state is None:
            task.published = new
            return
        task.record([applied.state.updated])
    raise BrokenPromiseError(f"the answer to apply names state {ANSWERS} times in turn")


def reset(actor: Actor, network: Network, task: Task, skipped: set[Row]) -> None:
    """Every fenced chain is added or skipped, and skipped if a row of it is in the table.

    Processes that others have left running may go on, but whoever is already deleting what it takes for left behind
    must have stopped: the files of a fenced chain are.
    """
    network.is_resetting = True
    try:
        actor.wait_for(lambda: not network.deleting)
        catalog = SimulatedCatalog(network, Author(0, "operator"))
        for path in [*network.lake.tables]:
            staged = [entry for entry in read_state(TASK, task.state) if entry.path == path]
            while fenced := _fenced(catalog, staged):
                with suppress(RetryableError):  # the table was changed in that moment: look again
                    author = Author(0, fenced[0].writer.key_range)
                    table = SimulatedCatalog(network, author).load_table(path)
                    _reset(table, network, fenced, skipped)
    finally:
        network.is_resetting = False


def _fenced(catalog: SimulatedCatalog, staged: list[StagedCommit]) -> list[StagedCommit]:
    """The first chain that is fenced."""
    verdicts = judge_commits(catalog.load_table(staged[0].path), staged) if staged else []
    fenced = [verdict.staged for verdict in verdicts if verdict.verdict is Verdict.FENCED]
    return [commit for commit in fenced if commit.writer == fenced[0].writer]


def _reset(table: Table, network: Network, chain: list[StagedCommit], skipped: set[Row]) -> None:
    """`skipped` becomes what is never going to be added if the reset lands, whatever the answer to it says."""
    rows = {row for commit in chain for row in network.staged[commit.next]}
    in_table = network.lake.rows(chain[0].path)
    is_partly_there = any(row in in_table for *_, row in rows)
    decision = Decision.SKIP if is_partly_there or network.stage.chance(0.3) else Decision.ADD
    try:
        planned = plan_reset(table, chain, decision)
    except UserError:  # its files are gone
        decision = Decision.SKIP
        planned = plan_reset(table, chain, decision)
    skipped -= rows
    skipped |= rows if decision is Decision.SKIP else set()
    perform_reset(table, planned, "simulated")
