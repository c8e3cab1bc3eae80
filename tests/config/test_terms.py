"""What `partition_by` and `sort_by` may say, and where they go wrong."""

from collections.abc import Callable
from typing import Any, Final

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from connector.config.settings import parse
from connector.config.terms import (
    TRANSFORMS,
    TRANSFORMS_WITH_WIDTH,
    SortTerm,
    Term,
    parse_partition_by,
    parse_sort_by,
)
from support.snapshots import check_text

ENDPOINT: Final = {"namespace": "shop", "catalog": {"catalog_type": "Local"}}


@pytest.mark.parametrize(
    ("text", "transform", "width"),
    [
        ("id", "identity", None),
        (" id ", "identity", None),
        ("identity(id)", "identity", None),
        ("bucket(16, id)", "bucket", 16),
        ("bucket(id, 16)", "bucket", 16),
        ("BUCKET ( 16 ,id )", "bucket", 16),
        ("bucket(0, id)", "bucket", 0),
        ("truncate(-4, id)", "truncate", -4),
        ("truncate(id, 4)", "truncate", 4),
        ("year(id)", "year", None),
        ("Years(id)", "year", None),
        ("months(id)", "month", None),
        ("month(id)", "month", None),
        ("days(id)", "day", None),
        ("DAY(id)", "day", None),
        ("date(id)", "day", None),
        ("hour(id)", "hour", None),
        ("hours(id)", "hour", None),
        ("date_hour(id)", "hour", None),
        ("void(id)", "void", None),
    ],
)
def test_a_term_has_a_transform_in_any_case(text: str, transform: str, width: int | None) -> None:
    assert parse_partition_by(text) == (Term(transform, "id", width),)


@pytest.mark.parametrize(
    ("text", "field"),
    [
        ("_meta/op", "_meta/op"),
        ("a.b-c", "a.b-c"),
        ("größe", "größe"),
        ("Day", "Day"),
        ("`a, (b)`", "a, (b)"),
        ("`a``b`", "a`b"),
        ("````", "`"),
        ("`16`", "16"),
        ("16", "16"),
        ("bucket(4, `16`)", "16"),
        ("day(`desc`)", "desc"),
    ],
)
def test_a_name_is_any_word_or_in_backticks(text: str, field: str) -> None:
    [term] = parse_partition_by(text)
    assert term.name == field


def test_terms_have_commas_between_them() -> None:
    assert parse_partition_by("day(at),\n bucket(16, id)") == (Term("day", "at"), Term("bucket", "id", 16))
    assert parse_partition_by(" \n") == ()
    assert parse_sort_by("") == ()


@pytest.mark.parametrize(
    ("words", "is_descending", "nulls_first"),
    [
        ("", False, True),
        ("asc", False, True),
        ("ASC nulls last", False, False),
        ("desc", True, False),
        ("Desc Nulls First", True, True),
        ("nulls last", False, False),
        ("nulls first", False, True),
    ],
)
def test_a_direction_decides_where_nulls_are_unless_words_do(
    words: str, is_descending: bool, nulls_first: bool
) -> None:
    assert parse_sort_by(f"id {words}, day(desc)") == (
        SortTerm(Term("identity", "id"), is_descending, nulls_first),
        SortTerm(Term("day", "desc"), False, True),
    )


def test_metadata_has_the_width_in_brackets() -> None:
    assert [term.full_transform for term in parse_partition_by("bucket(16, id), Days(at)")] == ["bucket[16]", "day"]


NAMES: Final = st.text(min_size=1) | st.sampled_from(["a`b", "16", "-1", "desc", "a b", "(", ",", " ", "_meta/op"])
TERMS: Final = st.one_of(
    st.builds(Term, st.sampled_from(sorted({*TRANSFORMS.values()} - {*TRANSFORMS_WITH_WIDTH})), NAMES),
    st.builds(Term, st.sampled_from(TRANSFORMS_WITH_WIDTH), NAMES, st.integers(-(10**9), 10**9)),
)
SORT_TERMS: Final = st.builds(SortTerm, TERMS, st.booleans(), st.booleans())


@given(st.lists(TERMS))
def test_terms_of_a_partition_spec_are_parsed_from_their_own_text(terms: list[Term]) -> None:
    assert parse_partition_by(", ".join(map(str, terms))) == tuple(terms)


@given(st.lists(SORT_TERMS))
def test_terms_of_a_sort_order_are_parsed_from_their_own_text(terms: list[SortTerm]) -> None:
    assert parse_sort_by(" ,".join(map(str, terms))) == tuple(terms)


PIECES: Final = st.sampled_from(
    ["bucket", "day", "(", ")", ",", "`", "16", "-", " ", "desc", "nulls", "last", "x", "\n"]
)


@pytest.mark.parametrize("parse_text", [parse_partition_by, parse_sort_by])
@given(text=st.text() | st.lists(PIECES).map("".join))
@example(text="bucket(" + "9" * 5000 + ", id)")
@example(text="(" * 5000)
def test_any_text_is_terms_or_an_error_with_its_place(
    parse_text: Callable[[str], tuple[Term | SortTerm, ...]], text: str
) -> None:
    try:
        terms = parse_text(text)
    except ValueError as error:
        assert ". At character " in str(error)  # noqa: PT017 - a text may also be right
        position = int(str(error).partition(". At character ")[2].partition(":")[0])
        assert 1 <= position <= len(text) + 1
    else:
        assert parse_text(", ".join(map(str, terms))) == terms


def problems(**config: Any) -> list[str]:
    with pytest.raises(Exception, match="bindings") as raised:
        parse(ENDPOINT, [{"table": "t", **config}])
    return str(raised.value).splitlines()


WRONG: Final = {
    "no field": "day()",
    "no field after a comma": "id,",
    "an empty name": "day(``)",
    "no comma": "day(at) bucket(16, id)",
    "no closing parenthesis": "id, day(at",
    "no closing backtick": "id, day(`at)",
    "no transform": "datetrunc(at)",
    "too many arguments": "day(at, id)",
    "no width": "bucket(id)",
    "two numbers": "truncate(4, 16)",
    "a direction": "id desc",
}


@pytest.mark.parametrize("name", WRONG)
def test_what_is_wrong_with_partition_by_is_said_with_its_place(name: str) -> None:
    [problem] = problems(partition_by=WRONG[name])
    check_text("config_errors", f"partition_by: {name}", problem)


@pytest.mark.parametrize(
    ("name", "text"),
    [("an unknown word", "id down"), ("half a null order", "id asc nulls"), ("two directions", "id asc desc")],
)
def test_what_is_wrong_with_sort_by_is_said_with_its_place(name: str, text: str) -> None:
    [problem] = problems(sort_by=text)
    check_text("config_errors", f"sort_by: {name}", problem)


def test_partition_fields_of_the_public_connector_are_the_same_terms() -> None:
    fields = [
        {"field": "id", "transform": "bucket[16]"},
        {"field": "note, or so", "transform": "Truncate[4]"},
        {"field": "at", "transform": "hour"},
        {"field": "Void", "transform": "void"},
        {"field": "id", "transform": "identity"},
        {"field": "16"},
    ]
    _, [given] = parse(ENDPOINT, [{"table": "t", "partition_fields": fields}])
    assert given.partition_terms == parse_partition_by(
        "bucket(16, id), truncate(4, `note, or so`), hour(at), void(Void), id, `16`"
    )


def test_without_partition_fields_a_table_keeps_its_spec() -> None:
    _, [empty, text, nothing] = parse(
        ENDPOINT,
        [
            {"table": "t", "partition_fields": []},
            {"table": "t", "partition_fields": [], "partition_by": ""},
            {"table": "t", "partition_fields": None},
        ],
    )
    assert (empty.partition_terms, text.partition_terms, nothing.partition_terms) == (None, (), None)


WRONG_FIELDS: Final[dict[str, dict[str, Any]]] = {
    "no list": {"partition_fields": "id"},
    "no object": {"partition_fields": ["id"]},
    "no field": {"partition_fields": [{"transform": "day"}]},
    "an empty field": {"partition_fields": [{"field": ""}]},
    "an unknown property": {"partition_fields": [{"field": "id", "name": "x"}]},
    "an unknown transform": {"partition_fields": [{"field": "id"}, {"field": "at", "transform": "weekly"}]},
    "no width": {"partition_fields": [{"field": "id", "transform": "bucket"}]},
    "a width too many": {"partition_fields": [{"field": "at", "transform": "day[2]"}]},
    "a width that is no number": {"partition_fields": [{"field": "at", "transform": "bucket[x]"}]},
    "both forms": {"partition_fields": [{"field": "id"}], "partition_by": "id"},
    "both forms, one of them empty": {"partition_fields": [{"field": "id"}], "partition_by": ""},
}


@pytest.mark.parametrize("name", WRONG_FIELDS)
def test_what_is_wrong_with_partition_fields_is_said_with_its_place(name: str) -> None:
    [problem] = problems(**WRONG_FIELDS[name])
    check_text("config_errors", f"partition_fields: {name}", problem)


def test_both_settings_are_wrong_at_once() -> None:
    assert [problem.partition(": ")[0] for problem in problems(partition_by="(", sort_by=")", table="")] == [
        "bindings[0] /table",
        "bindings[0] /partition_by",
        "bindings[0] /sort_by",
    ]


def test_an_empty_text_differs_from_no_setting() -> None:
    _, [without, empty, given] = parse(
        ENDPOINT,
        [
            {"table": "t"},
            {"table": "t", "partition_by": "", "sort_by": " "},
            {"table": "t", "partition_by": "id", "sort_by": "id"},
        ],
    )
    assert (without.partition_by, without.sort_by) == (None, None)
    assert (empty.partition_by, empty.sort_by) == ((), ())
    assert given.partition_by == (Term("identity", "id"),)
    assert given.sort_by == (SortTerm(Term("identity", "id"), is_descending=False, nulls_first=True),)
