"""A module that outgrows 300 lines holds two ideas."""

from typing import Final

from support.repository import REPOSITORY

LONGEST: Final = 300  # lines


def test_no_module_is_longer() -> None:
    modules = [path for package in ("connector", "protocol") for path in (REPOSITORY / package).rglob("*.py")]
    lines = {str(path.relative_to(REPOSITORY)): len(path.read_text().splitlines()) for path in modules}
    assert {module: count for module, count in lines.items() if count > LONGEST} == {}
