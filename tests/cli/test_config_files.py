"""A config is read as people write it: JSON, or YAML with the meaning that Flow gives it. An error says where it is."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Final

import pytest

from connector.cli.config_files import read_config, read_file
from connector.host.errors import UserError
from protocol.flow import Json
from support.snapshots import check_text


def written(directory: Path, content: str | bytes, name: str = "config.yaml") -> str:
    file = directory / name
    file.write_bytes(content.encode() if isinstance(content, str) else content)
    return str(file)


@pytest.mark.parametrize("name", ["config.json", "config.yaml", "config"])
def test_json_is_read_under_any_name(tmp_path: Path, name: str) -> None:
    config = {"namespace": "shop", "list": [1, 2.5, None, True], "text": "a: b # c\t\u00e9"}
    assert read_config(written(tmp_path, json.dumps(config, indent="\t"), name)) == config


@pytest.mark.parametrize("name", ["config.yaml", "config.yml", "config"])
def test_yaml_is_read_under_any_other_name(tmp_path: Path, name: str) -> None:
    text = "# a comment\nnamespace: shop\ncatalog:\n  catalog_type: REST\n  uri: 'https://lake'\n"
    expected = {"namespace": "shop", "catalog": {"catalog_type": "REST", "uri": "https://lake"}}
    assert read_config(written(tmp_path, text, name)) == expected


@pytest.mark.parametrize(
    ("text", "value"),
    [
        ("no", "no"),
        ("on", "on"),
        ("true", True),
        ("~", None),
        ("", None),
        ("1:30", "1:30"),
        ("010", "010"),
        ("1_000", "1_000"),
        ("-7", -7),
        ("1.5", 1.5),
        ("1e3", 1000.0),
        ("2026-11-22", "2026-11-22"),
        ("2026-11-22T10:00:00Z", "2026-11-22T10:00:00Z"),
        ("'1'", "1"),
        ("0x10", "0x10"),
    ],
)
def test_a_yaml_value_means_what_flow_takes_it_for(tmp_path: Path, text: str, value: Json) -> None:
    assert read_file(written(tmp_path, f"a: {text}")) == {"a": value}


def test_keys_are_strings_and_parts_can_be_reused(tmp_path: Path) -> None:
    text = "base: &base {a: 1, on: 2}\nwith: {<<: *base, a: 3}\n7: seven\ntrue: yes"
    assert read_file(written(tmp_path, text)) == {
        "base": {"a": 1, "on": 2},
        "with": {"a": 3, "on": 2},
        "7": "seven",
        "true": "yes",
    }


CONTENTS: Final[Mapping[str, str | bytes]] = {
    "YAML with a tab": "catalog:\n\tcatalog_type: Local\n",
    "YAML without a colon": "namespace: shop\ncatalog\nbucket: lake\n",
    "YAML with wrong indentation": "catalog:\n  uri: a\n warehouse: b\n",
    "YAML with a key that occurs twice": "namespace: shop\nbucket: lake\nnamespace: store\n",
    "YAML with a reserved character": "password: @planted-secret\n",
    "YAML with an anchor alone": "? [a, b]: c\nd: e\n",
    "YAML with two documents": "a: 1\n---\nb: 2\n",
    "YAML with a value that looks like an alias": "password: *planted-secret\n",
    "YAML with a value that looks like a tag": "password: !planted-secret\n",
    "YAML with a word as an integer": "namespace: shop\nport: !!int planted\n",
    "YAML with nothing as an integer": "namespace: shop\nport: !!int ''\n",
    "YAML with a word as a truth value": "catalog: {warehouse: a, secure: !!bool planted}\n",
    "YAML with a word as a time": "since: [!!timestamp planted]\n",
    "YAML with a date": "since: !!timestamp 2026-11-23\n",
    "YAML with bytes": "password: !!binary cGxhbnRlZA==\n",
    "YAML with a set": "catalog: !!set {planted}\n",
    "YAML with an ordered map": "catalog: !!omap [planted: 1]\n",
    "YAML with a number of 5,000 digits": f"namespace: shop\nport: {'7' * 5000}\n",
    "YAML with a negative number of 5,000 digits": f"- namespace: shop\n- -{'7' * 5000}\n",
    "YAML with an open quote": "password: 'planted-secret\n",
    "YAML with a colon in a value": "password: planted: secret\n",
    "YAML with an object that is not closed": "catalog: {uri: a\n",
    "YAML that is not UTF-8": b"a: b\nnamespace: caf\xe9\n",
    "YAML with a control character": "a: b\nnamespace: caf\x07\n",
}


@pytest.mark.parametrize("name", CONTENTS)
def test_an_error_of_yaml_says_the_file_the_line_and_what_is_wrong(tmp_path: Path, name: str) -> None:
    file = written(tmp_path, CONTENTS[name])
    with pytest.raises(UserError) as error:
        read_config(file)
    assert "planted" not in str(error.value)
    assert "JSON" not in str(error.value)
    check_text("cli_errors", name, str(error.value), {str(tmp_path): "…"})


def test_an_error_of_json_says_the_file_and_the_line(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_config(written(tmp_path, '{\n "namespace": "shop"\n "bucket": "planted"}', "config.json"))
    check_text("cli_errors", "JSON without a comma", str(error.value), {str(tmp_path): "…"})


DEEP: Final[Mapping[str, str]] = {
    "config.json": f'{{"a": {"[" * 500}{"]" * 500}}}',
    "deeper.json": "[" * 5000,
    "config.yaml": f"a: {'[' * 500}{']' * 500}",
    "endless.yaml": "a: &a {b: [*a]}",
}


@pytest.mark.parametrize("name", DEEP)
def test_a_file_that_is_nested_too_deeply_is_an_error(tmp_path: Path, name: str) -> None:
    with pytest.raises(UserError) as error:
        read_file(written(tmp_path, DEEP[name], name))
    check_text(
        "cli_errors", "a file that is nested too deeply", str(error.value), {str(tmp_path): "…", name: "config.yaml"}
    )


def test_half_a_character_is_an_error(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_config(written(tmp_path, r'namespace: "planted\uD800"'))
    check_text("cli_errors", "YAML with half of a surrogate pair", str(error.value), {str(tmp_path): "…"})


def test_an_encrypted_config_is_decrypted_by_sops_not_here(tmp_path: Path) -> None:
    encrypted = {"password_sops": "ENC[AES256_GCM,data:…]", "sops": {"mac": "ENC[…]", "version": "3.9.0"}}
    file = written(tmp_path, json.dumps(encrypted))
    with pytest.raises(UserError) as error:
        read_config(file)
    check_text("cli_errors", "an encrypted config", str(error.value), {str(tmp_path): "…"})


def test_a_flow_specification_is_not_a_config(tmp_path: Path) -> None:
    with pytest.raises(UserError) as error:
        read_config(written(tmp_path, "materializations: {acme/lake: {}}", "flow.yaml"))
    check_text("cli_errors", "a specification as a config", str(error.value), {str(tmp_path): "…"})


def test_a_decrypted_config_has_the_names_that_it_had_before(tmp_path: Path) -> None:
    decrypted = {"credentials": {"aws_secret_access_key_sops": "x"}, "list": [{"a_sops": 1}]}
    expected = {"credentials": {"aws_secret_access_key": "x"}, "list": [{"a": 1}]}
    assert read_config(written(tmp_path, json.dumps(decrypted))) == expected
