"""The private parts of the connector that planted defects replace, by what they do. When one gets another name or
place, this list changes, and no defect. `swap(*COMMIT_TO_TABLE, …)` replaces a part, and `getattr(*COMMIT_TO_TABLE)`
reads it."""

from typing import Final, TypeAlias

from connector.encoding.live_rows import deleted_rows
from connector.encoding.search import located_rows
from connector.iceberg import session_views, table_view
from connector.iceberg.commits import commit, compaction_changes, row_deletes
from connector.iceberg.commits.compaction_commit import CompactionCommit
from connector.iceberg.commits.delete_merging import DeleteMerger
from connector.iceberg.commits.snapshot import SnapshotWriter
from connector.iceberg.fences import fence
from connector.iceberg.metadata.manifest_merging import ManifestMerger
from connector.model import state
from connector.session import recovery, transactions
from connector.storage.file_io import WrittenFile

Part: TypeAlias = tuple[object, str]
PendingCommits: TypeAlias = commit._PendingCommits
LoadedTable: TypeAlias = commit._LoadedTable
DataFiles: TypeAlias = row_deletes._DataFiles
NO_SEQUENCE_NUMBER: Final = row_deletes._NONE

# A session
STAGE_TRANSACTION: Final[Part] = (transactions.Session, "_stage")
STAGE_TABLE: Final[Part] = (transactions.Session, "_stage_table")
CHECK_PREDECESSORS: Final[Part] = (recovery, "_check_predecessors")
ENCODE_COMMIT: Final[Part] = (state, "_encode")

# Commits
CHECK_KNOWN_FENCES: Final[Part] = (fence, "_check_known")
LOAD_TABLE: Final[Part] = (commit, "_load")
TRY_TABLE: Final[Part] = (commit, "_try_table")
COMMIT_PENDING: Final[Part] = (commit._PendingCommits, "commit")
COMMIT_TO_TABLE: Final[Part] = (commit._PendingCommits, "_commit")
MAKE_SNAPSHOT: Final[Part] = (SnapshotWriter, "_snapshot")
WRITE_MERGED_MANIFEST: Final[Part] = (ManifestMerger, "_write")
SEND_FILE: Final[Part] = (WrittenFile, "_write")

# Deletes of rows
SEARCH_ROWS: Final[Part] = (row_deletes.RowDeletes, "_search")
FIND_NEWER_FILES: Final[Part] = (row_deletes._DataFiles, "find_newer")
FIND_SEQUENCE_NUMBER: Final[Part] = (row_deletes._DataFiles, "find_sequence_number")
MERGE_DELETE_FILES: Final[Part] = (DeleteMerger, "perform")
READ_DELETE_FILES: Final[Part] = (DeleteMerger, "_read")
LIST_POSITIONS: Final[Part] = (DeleteMerger, "_list_positions")
LIST_FILE_SCOPED_DELETES: Final[Part] = (DeleteMerger, "_list_file_scoped")
HAS_NO_LIVE_ROWS: Final[Part] = (DeleteMerger, "_has_no_rows")
READ_DELETED_POSITIONS: Final[Part] = (deleted_rows, "_deleted_by")
REMEMBERED_DATA_FILES: Final[Part] = (deleted_rows, "_named")

# Loads
FIND_VIEW: Final[Part] = (session_views.SessionViews, "_find")
SEARCH_STAGED_ROWS: Final[Part] = (table_view, "_search_staged")
REMAINING_COMMITS_OF_VIEW: Final[Part] = (table_view, "_remaining_commits")
FIND_DELETED_ROWS: Final[Part] = (table_view.ViewFactory, "_find_deleted")
MOST_BYTES_REMEMBERED: Final[Part] = (located_rows, "_LITTLE")

# Compactions
CARRY_DELETES_OVER: Final[Part] = (compaction_changes._Table, "carry_over")
FIND_NEW_DELETES: Final[Part] = (compaction_changes._Table, "_find_new_deletes")
MOST_ROWS_LOST: Final[Part] = (compaction_changes, "_MOST_LOST")
WRITE_COMPACTION: Final[Part] = (CompactionCommit, "_write")
MAKE_COMPACTION_ENTRIES: Final[Part] = (CompactionCommit, "_make_entries")
FIND_LANDED_COMPACTION: Final[Part] = (CompactionCommit, "_find_landed")
DELETE_UNUSED_FILES: Final[Part] = (CompactionCommit, "_delete_unused")
