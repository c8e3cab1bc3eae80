"""What happens in the scenario of notifications: the process dies, and nothing was told of what its tables have.

A webhook must be told of each snapshot of the task's, in order for each table, and of none before it is committed.
"""

from http import HTTPStatus
from typing import Any

from crash.ledger import TABLES, PromiseBrokenError
from crash.shards import Event
from crash.task import Task
from support.servers.webhook_server import OK, Answer, Posted, WebhookServer, webhook_server


def killed_before_it_is_told(task: Task) -> None:
    """The webhook is out of order until the successor opens, and refuses a message of the successor, which dies."""
    webhook, early = task.resources.enter_context(webhook_server()), list[Any]()
    task.runtime.configure(notify={"url": webhook.url})

    def check_commit(posted: Posted) -> None:
        data = posted.event["data"]
        table = task.tables.table(data["table"].rpartition(".")[2])
        if table.snapshot_by_id(int(data["snapshotId"])) is None:
            early.append(data)

    webhook.on_post = check_commit
    webhook.usual = Answer(HTTPStatus.SERVICE_UNAVAILABLE)
    task.run_to(Event.ACKNOWLEDGED, 2)
    task.kill()
    assert webhook.posted
    assert not webhook.accepted
    webhook.usual = OK
    task.run_to(Event.RECORDED)
    webhook.answers.append(Answer(HTTPStatus.BAD_REQUEST))
    task.run_to(Event.ACKNOWLEDGED)
    task.kill()
    task.run_to(Event.RECORDED)
    task.end()
    if early:
        raise PromiseBrokenError(f"told before it was committed: {early}")
    for name in TABLES:
        _check_told(task, webhook, name)


def _check_told(task: Task, webhook: WebhookServer, name: str) -> None:
    table = task.tables.table(name)
    told = [snapshot for of_table, snapshot in webhook.snapshots() if of_table == ".".join(table.name())]
    committed = sorted(table.snapshots(), key=lambda snapshot: snapshot.sequence_number or 0)
    if [*dict.fromkeys(told)] != [snapshot.snapshot_id for snapshot in committed]:
        raise PromiseBrokenError(f"{name}: told {told}, committed {committed}")
