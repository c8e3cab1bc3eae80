"""What happens around the calls of a catalog: another writer is faster, an answer is lost, or the process ends."""

from collections.abc import Callable, Sequence
from functools import partial
from typing import Any, TypeAlias

from pyiceberg.catalog import Catalog

from support.plans import plan

Send: TypeAlias = partial[Any]  # sends the call, and has its arguments
Fault: TypeAlias = Callable[[Send], Any]


def intercept(catalog: Catalog, method: str, take: Fault) -> None:
    """Each call of a method goes here, if any comes."""
    call = getattr(type(catalog), method)

    def meet(*arguments: Any, **options: Any) -> Any:
        return take(partial(call, catalog, *arguments, **options))

    setattr(catalog, method, meet)


def plant(catalog: Catalog, faults: Sequence[Fault], method: str = "commit_table") -> None:
    """The next calls of a method meet these faults, one each, in place of earlier ones. Further calls are sent. The
    test fails if it ends before the last fault."""
    left, met = iter(faults), list[Fault]()

    def meet(send: Send) -> Any:
        if (fault := next(left, None)) is None:
            return send()
        met.append(fault)
        return fault(send)

    intercept(catalog, method, meet)
    plan(f"{len(faults)} faults of {method}", lambda: len(met) == len(faults))


def plant_always(catalog: Catalog, fault: Fault, method: str = "commit_table") -> None:
    """Each further call of a method meets this fault, at least one before the test ends."""
    met = list[Fault]()

    def meet(send: Send) -> Any:
        met.append(fault)
        return fault(send)

    intercept(catalog, method, meet)
    plan(f"a fault of {method}", lambda: met)


def no_fault(send: Send) -> Any:
    return send()


def do_first(event: Callable[[], object]) -> Fault:
    """Something happens before the call reaches the catalog. A call that it makes itself meets the next fault."""

    def happen_and_send(send: Send) -> Any:
        event()
        return send()

    return happen_and_send


def do_after(event: Callable[[], object]) -> Fault:
    """Something happens between the call and its answer."""

    def send_and_happen(send: Send) -> Any:
        answer = send()
        event()
        return answer

    return send_and_happen


def lose_answer(error: Exception) -> Fault:
    """The call reaches the catalog, and its caller sees this error."""

    def send_and_raise(send: Send) -> Any:
        send()
        raise error

    return send_and_raise


def refuse(error: BaseException) -> Fault:
    """The call does not reach the catalog."""

    def raise_it(_: Send) -> Any:
        raise error

    return raise_it
