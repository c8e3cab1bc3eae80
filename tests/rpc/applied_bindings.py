"""Apply requests of a task with a Local catalog."""

from pathlib import Path

from connector.cli.commands.plan_command import describe_plan, plan_recorded
from connector.rpc.apply import apply
from protocol import request, response
from protocol.flow import Collection, Json, Materialization, MaterializationBinding
from support.bindings import DOCUMENT, ID, MATERIALIZATION, collection, local_config, materialization, projection
from support.bindings import materialization_binding as binding

NOTE = projection("note", "string")
ORDERS = collection(ID, DOCUMENT, NOTE, projection("qty", "integer"))
V0, V1 = "shop%2Forders.v0", "shop%2Forders.v1"
RETURNS = binding(ORDERS, table="returns")
AWAY = ("shop", "away")
RETAIN = "retain_existing_data_on_backfill"


def applied(
    warehouse: Path,
    *bindings: MaterializationBinding,
    last: Materialization | None = None,
    state: Json = None,
    linked: tuple[Collection, ...] = (),
    **advanced: Json,
) -> response.Applied:
    task = Materialization(
        MATERIALIZATION, config=local_config(warehouse, **advanced), bindings=bindings, linked_collections=linked
    )
    return apply(request.Apply(task, last_materialization=last, state=state))


def planned(warehouse: Path, *bindings: MaterializationBinding, last: Materialization, state: Json) -> str:
    task = Materialization(MATERIALIZATION, config=local_config(warehouse), bindings=bindings)
    actions = plan_recorded([request.Apply(task, last_materialization=last, state=state)])
    return describe_plan(actions, as_json=False)


def before(*bindings: MaterializationBinding) -> Materialization:
    return materialization(None, *bindings)


def backfilled(tmp_path: Path, *, state: Json = None, **advanced: Json) -> response.Applied:
    return applied(tmp_path, binding(ORDERS, backfill=1), last=before(binding(ORDERS)), state=state, **advanced)
