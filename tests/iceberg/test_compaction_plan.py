"""What is rewritten, how often, and that a table that is compacted is left alone."""

import random
import sys
from collections.abc import Sequence
from dataclasses import replace
from math import log
from types import FrameType
from typing import Any, Final

import pytest
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.typedef import Record

from connector.encoding.live_rows.deletion_vectors import DeletionVector
from connector.iceberg.maintenance.compaction_plan import GROWTH, GroupPlan, plan_groups
from connector.iceberg.maintenance.compaction_thresholds import CompactionThresholds, is_compaction_enabled
from connector.iceberg.metadata.listed_files import ListedFile
from connector.iceberg.metadata.partitions import Partition

MB: Final = 1 << 20
TARGET: Final = 128 * MB
THRESHOLDS: Final = CompactionThresholds.of({"write.target-file-size-bytes": str(TARGET)})
NOWHERE: Final = Partition.of(0, Record())
NORTH, SOUTH = (Partition.of(1, Record(place)) for place in ("north", "south"))


def data(name: str, size: int, number: int = 1, partition: Partition = NOWHERE, rows: int = 1000) -> ListedFile:
    parquet = FileFormat.PARQUET
    return ListedFile(name, "m", DataFileContent.DATA, parquet, rows, size, 1, partition, number, number, None)


def deletes(rows: int, *of: str, number: int = 9, partition: Partition = NOWHERE) -> ListedFile:
    bounds = (min(of).encode(), max(of).encode()) if of else None
    content, parquet = DataFileContent.POSITION_DELETES, FileFormat.PARQUET
    name = f"deletes-{'-'.join(of)}"
    return ListedFile(name, "m", content, parquet, rows, rows, 1, partition, number, number, bounds)


def vector(rows: int, of: str, number: int = 9) -> ListedFile:
    where = DeletionVector("deletes.puffin", 4, rows, of)
    return replace(deletes(rows, of, number=number), path=where.path, format=FileFormat.PUFFIN, vector=where)


def deletes_by_value(number: int, partition: Partition = NOWHERE) -> ListedFile:
    return replace(
        deletes(1, number=number, partition=partition), content=DataFileContent.EQUALITY_DELETES, bounds=None
    )


def names(groups: Sequence[GroupPlan]) -> list[list[str]]:
    return [[source.path for source in planned.group.sources] for planned in groups]


def plan(*files: ListedFile) -> list[list[str]]:
    return names(plan_groups(files, THRESHOLDS))


def many(count: int, size: int = MB, partition: Partition = NOWHERE, prefix: str = "f") -> list[ListedFile]:
    return [data(f"{prefix}{number:06}", size, number, partition) for number in range(count)]


def test_small_files_are_merged_oldest_first() -> None:
    files = [data(name, MB, number) for number, name in enumerate("dbeca")]
    assert plan(*reversed(files)) == [["d", "b", "e", "c", "a"]]


@pytest.mark.parametrize(
    "files",
    [
        [],
        many(1),
        many(4),  # fewer than flow.compaction.min-input-files
        many(50, TARGET),
        many(50, 100 * MB),  # nearly as large: nothing would be gained
        many(50, 70 * MB),  # two of them are larger than one file may be
        [*many(4), data("large", 60 * MB)],
        [*many(4, partition=NORTH), *many(4, partition=SOUTH)],
    ],
    ids=len,
)
def test_nothing_is_planned_without_a_gain(files: list[ListedFile]) -> None:
    assert not plan(*files)


def test_files_of_one_size_fill_a_file_though_larger_ones_lie_between_them() -> None:
    sizes = {"a": 57 * MB, "b": 77 * MB, "c": 57 * MB, "d": 77 * MB}
    assert plan(*(data(name, size, number) for number, (name, size) in enumerate(sizes.items()))) == [["a", "c"]]


def test_files_of_several_partitions_and_specs_stay_apart() -> None:
    groups = plan(*many(5, partition=NORTH, prefix="n"), *many(5, partition=SOUTH, prefix="s"), *many(5, prefix="o"))
    assert sorted({name[0] for name in group}.pop() * len(group) for group in groups) == ["nnnnn", "ooooo", "sssss"]


def test_a_group_makes_one_file_of_the_target_size() -> None:
    groups = plan_groups(many(1000), THRESHOLDS)
    assert {planned.size for planned in groups[:-1]} == {TARGET}
    assert sum(len(planned.group.sources) for planned in groups) == 1000


def test_files_to_which_deletes_by_value_apply_are_left_alone() -> None:
    files = many(10)  # with the sequence numbers 0 to 9
    assert plan(*files, deletes_by_value(5)) == [["f000005", "f000006", "f000007", "f000008", "f000009"]]
    in_north, in_south = many(5, partition=NORTH, prefix="n"), many(5, partition=SOUTH, prefix="s")
    assert {name[0] for [name, *_] in plan(*in_north, *in_south, deletes_by_value(9, NORTH))} == {"s"}
    assert not plan(*in_north, *in_south, deletes_by_value(9)), "of the unpartitioned spec: they apply to all"
    assert len(plan(*in_north, *in_south, deletes_by_value(0))) == 2, "they are no newer than any file"
    assert not plan(*in_north, deletes_by_value(9, NORTH), deletes_by_value(0, NORTH)), "the older ones are listed last"
    assert not plan(*in_north, deletes_by_value(9), deletes_by_value(0))


class _CountedNumber(int):
    """A sequence number. It counts how often one is compared."""

    comparisons = 0

    def __gt__(self, other: int) -> bool:
        _CountedNumber.comparisons += 1
        return super().__gt__(other)

    def __lt__(self, other: int) -> bool:
        _CountedNumber.comparisons += 1
        return super().__lt__(other)


def test_not_each_data_file_is_compared_with_each_delete_by_value(monkeypatch: pytest.MonkeyPatch) -> None:
    """A streaming writer has left many of them, all older than the data files."""
    partitions = [Partition.of(1, Record(str(place))) for place in range(10)]
    files = [
        data(f"f{number:03}", TARGET, _CountedNumber(1000 + number), partition)
        for partition in partitions
        for number in range(30)
    ]
    by_value = [
        deletes_by_value(_CountedNumber(number), partition)
        for partition in (*partitions, NORTH)
        for number in range(30)
    ]
    monkeypatch.setattr(_CountedNumber, "comparisons", 0)
    assert not plan(*by_value, *files)
    each = len(files) + len(by_value)
    assert each <= _CountedNumber.comparisons <= 10 * each, "and not the product"


def test_files_that_are_no_parquet_are_left_alone() -> None:
    files = [replace(file, format=FileFormat.ORC) for file in many(10)]
    assert not plan(*files)
    avro = replace(deletes(1, "f000000"), format=FileFormat.AVRO)
    assert not plan(*many(10), avro)
    assert plan(*many(10), replace(deletes_by_value(0), format=FileFormat.AVRO)), "it applies to none"


def test_a_file_with_many_deleted_rows_is_rewritten_alone() -> None:
    large = data("large", TARGET)
    assert not plan(large, deletes(299, "large"))
    assert plan(large, deletes(300, "large")) == [["large"]]
    assert plan(large, deletes(150, "large"), deletes(150, "large")) == [["large"]]
    assert not plan(data("large", TARGET, number=10), deletes(300, "large")), "the deletes are older than the file"
    in_north = replace(large, partition=NORTH)
    assert not plan(in_north, deletes(300, "large", partition=SOUTH)), "the deletes are of another partition"


def test_files_that_share_a_delete_file_are_rewritten_for_their_average() -> None:
    files = many(4, TARGET)
    assert not plan(*files, deletes(1199, "f000000", "f000003"))
    assert len(plan(*files, deletes(1200, "f000000", "f000003"))) == 4
    assert len(plan(*files, deletes(600, "f000000", "f000001"))) == 2
    assert not plan(*files, *(deletes(100) for _ in range(11)))
    assert len(plan(*files, *(deletes(100) for _ in range(12)))) == 4
    of_each = [deletes(299, file.path) for file in files]
    assert not plan(*files, *of_each, deletes(3, "f000000", "f000003"))
    assert len(plan(*files, *of_each, deletes(4, "f000000", "f000003"))) == 4, "each file has more of its own"


def test_a_shared_delete_file_counts_only_for_files_to_which_it_applies() -> None:
    files, older = many(4, TARGET), [["f000000"], ["f000001"], ["f000002"]]
    assert plan(*files, deletes(1200, "f000000", "f000003", number=2)) == older
    assert plan(*files, *(deletes(100, number=2) for _ in range(12))) == older
    assert not plan(*many(4, TARGET, NORTH), deletes(4000, partition=SOUTH))
    repeated = deletes(5000, "f000000")
    assert plan(*files, repeated, deletes(1, "f000000", "f000003")) == [["f000000"]], "no file loses more than its rows"


def test_only_the_vector_counts_for_a_file_that_has_one() -> None:
    """It has the rows of older delete files, too."""
    large = data("large", TARGET)
    assert not plan(large, vector(299, "large"), deletes(299, "large"))
    assert plan(large, vector(300, "large"), deletes(1, "large")) == [["large"]]
    files = many(3, TARGET)
    vectors = [vector(299, file.path) for file in files[:2]]
    shared = deletes(598, "f000000", "f000001")
    assert not plan(*files, *vectors, shared), "nor does it count for the file that has none"
    assert plan(*files, vectors[0], shared) == [["f000001"]]


def test_a_group_names_the_deletes_that_apply_to_each_source() -> None:
    shared, old = deletes(10, "f000001", "f000003"), deletes(10, "f000004", number=3)
    of_the_same_commit = deletes(10, "f000002", number=2)
    [planned] = plan_groups([*many(5), deletes(10, "f000000"), shared, old, of_the_same_commit], THRESHOLDS)
    assert [len(source.position_deletes) for source in planned.group.sources] == [1, 1, 2, 1, 0]
    assert planned.delete_files == 3


def test_of_deletes_that_name_several_files_a_group_names_those_that_apply() -> None:
    """None to newer files, and only the vector to a file that has one: it has their rows."""
    shared, current, older = (
        deletes(10, "f000000", "f000004", number=3),
        vector(10, "f000000"),
        vector(10, "f000002", number=1),
    )
    [planned] = plan_groups([*many(5), current, older, shared], THRESHOLDS)
    assert [source.position_deletes for source in planned.group.sources] == [
        (current.vector,),
        (shared.path,),
        (shared.path,),
        (shared.path,),
        (),
    ]


def test_the_best_gain_comes_first() -> None:
    groups = plan(*many(10, 8 * MB, NORTH, "n"), *many(10, MB, SOUTH, "s"), data("x", TARGET), deletes(999, "x"))
    assert [group[0][0] for group in groups] == ["s", "n", "x"]
    of_y = [replace(deletes(150, "y"), path=f"of y {number}") for number in range(2)]
    groups = plan(data("x", TARGET), deletes(300, "x"), data("y", TARGET), *of_y)
    assert groups == [["y"], ["x"]], "delete files that go count, too"


@pytest.mark.parametrize("seed", range(4))
def test_a_row_is_rewritten_a_few_times_while_its_file_grows(seed: int) -> None:
    """As many times as its file can grow, and once more when it reaches the target size."""
    chance = random.Random(seed)
    files: list[ListedFile] = []
    times: dict[str, int] = {}
    most = 0
    smallest = MB // 4
    for number in range(1500):
        size = chance.choice((smallest, MB, MB, 4 * MB))
        files.append(data(f"w{number}", size, number))
        for planned in plan_groups(files, THRESHOLDS):
            sources = {source.path for source in planned.group.sources}
            made = f"c{number}-{len(times)}"
            times[made] = 1 + max(times.get(source, 0) for source in sources)
            files = [file for file in files if file.path not in sources] + [data(made, planned.size, number)]
        assert not plan_groups(files, THRESHOLDS), "what is planned is planned once"
        most = max(most, sum(file.size < THRESHOLDS.min_size for file in files))
    assert max(times.values()) <= log(TARGET / smallest, GROWTH) + 2
    assert most <= 20, "small files"


def test_an_old_file_of_a_small_table_is_rewritten_for_one_deleted_row() -> None:
    """It is old after as many commits as the table has allowances, 64 KiB each: here 16."""
    old = data("old", MB, number=1)
    assert not plan(old, deletes(1, "old", number=16))
    assert plan(old, deletes(1, "old", number=17)) == [["old"]]
    assert plan(old, vector(1, "old", number=17)) == [["old"]]
    assert not plan(replace(old, file_sequence_number=2), deletes(1, "old", number=17)), "it was rewritten since"
    assert not plan(old, data("new", MB, number=17), deletes(1, "old", number=17)), "all files count"
    assert not plan(old, data("new", 1, number=17)), "without deletes, nothing is gained"
    assert not plan(data("tiny", 1), deletes(1, "tiny", number=5)), "there are always some commits between"


def test_of_files_that_share_a_delete_file_the_old_ones_are_rewritten() -> None:
    files = [data("a", TARGET, number=1), data("b", TARGET, number=2), data("c", TARGET, number=40)]
    age = 3 * TARGET // THRESHOLDS.commit_allowance
    assert not plan(*files, deletes(1, "a", "c", number=age))
    assert plan(*files, deletes(1, "a", "c", number=age + 1)) == [["a"]]
    assert plan(*files, deletes(1, "a", "c", number=age + 2)) == [["a"], ["b"]]
    assert plan(*files, deletes(1, "b", "c", number=age + 2)) == [["b"]]


def test_an_old_file_takes_smaller_ones_along() -> None:
    files = [data("old", 2 * MB, 1), data("small", MB, 99), data("larger", 4 * MB, 99)]
    assert plan(*files, deletes(1, "old", number=200)) == [["old", "small"]]
    assert plan(files[0], data("equal", 2 * MB, 99), deletes(1, "old", number=200)) == [["old", "equal"]]
    assert plan(files[0], data("oldest", MB, 0), deletes(1, "old", number=200)) == [["oldest", "old"]]
    young = data("young", 2 * MB, 190)
    assert plan(young, *files[1:], deletes(999, "young", number=200)) == [["young"]]
    large = data("old", THRESHOLDS.min_size, 1)
    assert plan(large, data("small", MB, 99), deletes(1, "old", number=5000)) == [["old"]], "it is not merged with any"


def test_files_that_do_not_fit_beside_an_old_one_are_rewritten_for_their_own_gain_only() -> None:
    files = [data("old", 80 * MB, 1), data("clean", 70 * MB, 1)]
    assert plan(*files, deletes(1, "old", number=5000)) == [["old"]]
    full = [data("full1", 60 * MB, 2), data("full2", 60 * MB, 2)]
    assert plan(*files, *full, deletes(1, "old", number=9000)) == [["old"], ["full1", "full2"]]


def test_an_old_small_file_is_merged_although_the_new_one_is_hardly_larger() -> None:
    largest, smaller = data("x", 8 * MB, 1), many(4)
    assert not plan(largest, *smaller[:3], data("newest", MB, 190))
    assert len(plan(largest, *smaller[:3], data("newest", MB, 200))[0]) == 5
    assert not plan(largest, *smaller[:2], data("newest", MB, 200)), "fewer than flow.compaction.min-input-files"


@pytest.mark.parametrize("size", [MB // 16, MB, 4 * MB, 50 * MB, TARGET])
@pytest.mark.parametrize("updated", [4, 2])
def test_old_files_cost_at_most_the_allowance_of_each_commit(size: int, updated: int) -> None:
    """Every commit deletes a row of each of the first files."""
    files = [data(f"f{number}", size, 0, rows=10_000_000) for number in range(4)]
    commits, rewritten = 5000, 0
    for number in range(1, commits + 1):
        since = {file.path: number - file.sequence_number for file in files}
        deleted = [deletes(since[file.path], file.path, number=number) for file in files[:updated]]
        for planned in plan_groups([*files, *deleted], THRESHOLDS):
            rewritten += planned.size
            gone = {source.path for source in planned.group.sources}
            made = [replace(file, sequence_number=number, file_sequence_number=number) for file in files]
            files = [new if file.path in gone else file for file, new in zip(files, made, strict=True)]
    assert rewritten <= commits * THRESHOLDS.commit_allowance
    assert (rewritten > 0) == (4 * size <= commits * THRESHOLDS.commit_allowance)


def test_no_allowance_leaves_old_files_alone() -> None:
    thresholds = CompactionThresholds.of({"flow.compaction.bytes-per-commit": "0"})
    assert not plan_groups([data("old", 1), deletes(1, "old", number=10_000)], thresholds)


def test_ten_times_the_files_take_ten_times_the_steps() -> None:
    steps = [count_steps_of_planning(number) for number in (400, 4_000)]
    assert steps[1] < 11 * steps[0]


def count_steps_of_planning(number: int) -> int:
    """The lines that are run to plan a table of so many small files with deletes. Each turn of a loop is a line."""
    files = many(number)
    shared = [deletes(150, f"f{first:06}", f"f{first + 3:06}", number=number) for first in range(0, number, 4)]
    steps = 0

    def count(_frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal steps
        steps += event == "line"
        return count

    before = sys.gettrace()
    sys.settrace(count)
    try:
        groups = plan_groups([*files, *shared], THRESHOLDS)
    finally:
        sys.settrace(before)
    assert sum(len(planned.group.sources) for planned in groups) > 0.9 * number
    return steps


def test_the_thresholds_without_properties_are_those_of_spark() -> None:
    assert not is_compaction_enabled({})
    assert is_compaction_enabled({"flow.compaction.enabled": "true"})
    thresholds = THRESHOLDS
    assert (thresholds.target_size, thresholds.min_size, thresholds.max_size) == (128 * MB, 96 * MB, 241591910)


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("flow.compaction.min-file-size-bytes", "1e12"),
        ("flow.compaction.max-file-size-bytes", "1"),
        ("flow.compaction.min-input-files", "1"),
        ("flow.compaction.min-input-files", "2.9"),
        ("flow.compaction.min-input-files", " 5 "),
        ("flow.compaction.delete-ratio-threshold", "many"),
        ("flow.compaction.delete-ratio-threshold", "0"),
        ("flow.compaction.delete-ratio-threshold", "nan"),
        ("flow.compaction.bytes-per-commit", "-1"),
        ("flow.compaction.bytes-per-commit", "1e400"),
        ("flow.compaction.bytes-per-commit", "1_000"),
        ("write.target-file-size-bytes", "100_000_000"),
    ],
)
def test_an_invalid_threshold_is_refused(name: str, value: str) -> None:
    with pytest.raises(ValueError, match=name):
        CompactionThresholds.of({name: value})
