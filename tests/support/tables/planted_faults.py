"""What happens around the calls of a catalog: another writer is faster, an answer is lost, or the process ends."""

from collections.abc import Callable, Iterable
from functools import partial
from typing import Any, TypeAlias

from pyiceberg.catalog import Catalog

Send: TypeAlias = partial[Any]  # sends the call, and has its arguments
Fault: TypeAlias = Callable[[Send], Any]


def plant(catalog: Catalog, faults: Iterable[Fault], method: str = "commit_table") -> None:
    """The next calls of a method meet these faults, one each, in place of earlier ones. Further calls are sent."""
    call, left = getattr(type(catalog), method), iter(faults)

    def meet(*arguments: Any, **options: Any) -> Any:
        send = partial(call, catalog, *arguments, **options)
        return next(left, no_fault)(send)

    setattr(catalog, method, meet)


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
