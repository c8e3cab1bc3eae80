"""Prints the rows of a table that match a filter. PyIceberg's settings must define a catalog "lake".

query_table.py TABLE [FILTER]
"""

import sys

from pyiceberg.catalog import load_catalog

from connector.cli.texts.table_lines import align


def main(name: str, row_filter: str = "true") -> None:
    found = load_catalog("lake").load_table(name).scan(row_filter).to_arrow()
    print("\n".join(align(found.column_names, [list(row.values()) for row in found.to_pylist()])))
    print(f"{found.num_rows} rows")


if __name__ == "__main__":
    main(*sys.argv[1:])
