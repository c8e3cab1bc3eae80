import pickle

import pytest

from connector.model.properties import Properties, parse_whole_number, read_number

SIGNED = {"s3.region": "eu-west-1", "s3.secret-access-key": "planted-secret"}


def test_properties_in_another_order_are_equal_and_have_the_same_hash() -> None:
    one, other = Properties(SIGNED), Properties(dict(reversed(SIGNED.items())))
    assert one == other == SIGNED
    assert hash(one) == hash(other)


def test_properties_do_not_change_with_the_mapping_that_they_were_made_of() -> None:
    values = dict(SIGNED)
    properties = Properties(values)
    values["s3.region"] = "us-east-1"
    assert properties["s3.region"] == "eu-west-1"


def test_properties_can_be_sent_to_a_spark_task() -> None:
    assert pickle.loads(pickle.dumps(Properties(SIGNED))) == Properties(SIGNED)


def test_properties_do_not_show_their_values() -> None:
    assert repr(Properties(SIGNED)) == "Properties of s3.region, s3.secret-access-key"


def test_whole_numbers_are_those_of_other_engines() -> None:
    assert [parse_whole_number(text) for text in ("0", "-1", "+2", "0012")] == [0, -1, 2, 12]


@pytest.mark.parametrize("text", ["", "1_000", " 1", "1\n", "1.0", "٣", "few"])
def test_what_only_python_reads_as_a_whole_number_is_none(text: str) -> None:
    with pytest.raises(ValueError, match=r"^$"):
        parse_whole_number(text)


@pytest.mark.parametrize("text", ["", "0", " 5 ", "2.9"])
def test_an_error_names_a_number_and_the_least_one(text: str) -> None:
    assert read_number({}, "a", 5, least=1) == 5
    with pytest.raises(ValueError, match=rf"^a is '{text}'; it must be a whole number from 1 upwards$"):
        read_number({"a": text}, "a", 5, least=1)


def test_an_error_does_not_quote_a_long_value_whole() -> None:
    with pytest.raises(ValueError, match=r"^a is 'x{60} …'; it must be a whole number$"):
        read_number({"a": "x" * 100}, "a", 5)
