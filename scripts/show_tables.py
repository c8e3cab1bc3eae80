"""Shows the tables of an embedded catalog: schema, snapshots, some rows. It uses only PyIceberg."""

import sys
from pathlib import Path

from pyiceberg.catalog.sql import SqlCatalog

from connector.cli.texts.table_lines import describe_table, explain_opening


def show_tables(warehouse: Path) -> None:
    catalog_file = warehouse / "catalog.db"
    catalog = SqlCatalog("local", uri=f"sqlite:///{catalog_file}", warehouse=str(warehouse))
    tables = [
        catalog.load_table(name) for namespace in catalog.list_namespaces() for name in catalog.list_tables(namespace)
    ]
    for table in tables:
        print("\n".join(describe_table(table)), end="\n\n")
    if tables:
        print("\n".join(explain_opening(tables[0], catalog_file)))


if __name__ == "__main__":
    show_tables(Path(sys.argv[1]).resolve())
