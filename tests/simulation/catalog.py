"""One process's connection to the catalog, behind PyIceberg's own interface. Every call is a boundary."""

from typing import Any

from pyiceberg.catalog.noop import NoopCatalog
from pyiceberg.partitioning import UNPARTITIONED_PARTITION_SPEC, PartitionSpec
from pyiceberg.table import CommitTableResponse, Table
from pyiceberg.table.sorting import UNSORTED_SORT_ORDER, SortOrder
from pyiceberg.table.update import TableRequirement, TableUpdate
from pyiceberg.typedef import EMPTY_DICT, Properties

from simulation.actors import running
from simulation.lake import Commit, Metadata, Path
from simulation.network import Network
from simulation.takeovers import Author


class SimulatedCatalog(NoopCatalog):
    """What of a catalog the connector uses."""

    def __init__(self, network: Network, author: Author) -> None:
        super().__init__("simulated")
        self.read: dict[Path, int] = {}  # the newest sequence number
        self._network, self._author = network, author
        self._io = network.open_store()

    def load_table(self, identifier: Any) -> Table:
        metadata = self._network.load_table(identifier)
        self.read[identifier] = metadata.last_sequence_number
        return self._table(identifier, metadata)

    def commit_table(
        self, table: Table, requirements: tuple[TableRequirement, ...], updates: tuple[TableUpdate, ...]
    ) -> CommitTableResponse:
        commit = Commit((table.name()[0], table.name()[1]), requirements, updates)
        metadata = self._network.send(commit, self._author)
        return CommitTableResponse.model_construct(metadata=metadata, metadata_location="memory:///metadata.json")

    def namespace_exists(self, namespace: Any) -> bool:  # noqa: ARG002 - PyIceberg's signature
        return True

    def table_exists(self, identifier: Any) -> bool:
        return identifier in self._network.lake.tables

    def view_exists(self, identifier: Any) -> bool:  # noqa: ARG002 - PyIceberg's signature
        return False

    def create_table(
        self,
        identifier: Any,
        schema: Any,
        location: str | None = None,
        partition_spec: PartitionSpec = UNPARTITIONED_PARTITION_SPEC,
        sort_order: SortOrder = UNSORTED_SORT_ORDER,
        properties: Properties = EMPTY_DICT,
    ) -> Table:
        assert (location, partition_spec, sort_order) == (None, UNPARTITIONED_PARTITION_SPEC, UNSORTED_SORT_ORDER)
        self._network.call(self._network.weather.load, "the creation of a table")
        others = {name: value for name, value in properties.items() if name != "format-version"}
        version_3 = properties.get("format-version") == "3"
        metadata = self._network.lake.create(identifier, schema, others, version_3=version_3)
        running().tell(f"creates {identifier[1]}")
        return self._table(identifier, metadata)

    def drop_table(self, identifier: Any) -> None:
        self._network.call(self._network.weather.load, "the drop of a table")
        self._network.lake.drop(identifier)
        running().tell(f"drops {identifier[1]}")

    def _table(self, path: Path, metadata: Metadata) -> Table:
        return Table(path, metadata, "memory:///metadata.json", self._io, self)
