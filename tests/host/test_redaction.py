"""A secret is in no text that leaves the process, in whatever form a server or a client has quoted it."""

import html
import json
import re
from base64 import b64encode, urlsafe_b64encode
from collections.abc import Callable
from urllib.parse import quote, urlencode
from xml.sax.saxutils import escape

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from connector.host.redaction import (
    HIDDEN,
    LONGEST_QUOTE,
    SHORTEST,
    Redaction,
    hide_obtained,
    hide_proxies,
    redact,
    redact_and_shorten,
)

SECRET = 'p/lan+ted "se=cret" Ü\\'
LINES = ("MIIEvQIBADANBgkqhkiG9w0BAQEFAASC", "u7q2yK1x0hVqXc8o5bGmZtR3wEpLsNdf")
PEM = "-----BEGIN PRIVATE KEY-----\n{}\n{}\n-----END PRIVATE KEY-----\n".format(*LINES)
SERVICE_ACCOUNT = json.dumps({"type": "service_account", "private_key": PEM, "client_email": "robot@lake.example"})


def encode_json(secret: str) -> str:
    return json.dumps(secret)[1:-1]


def encode_url(secret: str) -> str:
    return quote(secret, safe="", errors="replace")


def redacted(text: str, *secrets: str) -> str:
    redaction = Redaction()
    for secret in secrets:
        redaction.hide(secret)
    return redaction.redact(text)


@pytest.mark.parametrize(
    "form",
    [
        SECRET,
        repr(SECRET)[1:-1],
        json.dumps(SECRET)[1:-1],
        quote(SECRET, safe=""),
        urlencode({"": SECRET})[1:],
        b64encode(SECRET.encode()).decode(),
        json.dumps(SECRET, ensure_ascii=False)[1:-1],
        json.dumps(SECRET)[1:-1].replace("/", "\\/"),
        json.dumps(SECRET)[1:-1].replace("/", "\\u002f").replace("+", "\\u002B"),
        json.dumps(json.dumps(SECRET))[3:-3],
        quote(SECRET),
        re.sub("%..", lambda escape: escape[0].lower(), quote(SECRET, safe="")),
        re.sub("%..", lambda escape: escape[0].lower(), urlencode({"": SECRET})[1:]),
        quote(quote(SECRET, safe=""), safe=""),
        quote(quote(quote(SECRET, safe=""), safe=""), safe=""),
        quote(json.dumps(SECRET)[1:-1], safe=""),
        json.dumps(quote(SECRET, safe="").replace("%", "\\u0025")).replace("\\\\", "\\")[1:-1],
        html.escape(SECRET),
        escape(SECRET, {'"': "&#x22;", "+": "&#43;"}),
        ascii(SECRET)[1:-1],
        "".join(f"%{byte:02x}" for byte in SECRET.encode()),
    ],
)
def test_a_secret_is_hidden_in_every_form_that_it_is_quoted_in(form: str) -> None:
    assert redacted(f"before {form} after, {form}", SECRET).replace("=", "") == f"before {HIDDEN} after, {HIDDEN}"


@given(st.text(min_size=SHORTEST), st.text(), st.text())
def test_a_secret_of_any_characters_is_hidden_as_it_is_in_json_and_in_urls(
    secret: str, before: str, after: str
) -> None:
    assume(len(secret.strip()) >= SHORTEST and secret not in f"{before}{HIDDEN}{after}")
    for encode in (str, encode_json, encode_url):
        said = redacted(f"{before} {encode(secret)} {after}", secret)
        assert HIDDEN in said
        assert encode(secret).strip() not in said


@pytest.mark.parametrize(
    "text",
    ["\\u12", "\\u", "\\x1", "\\x", "\\U0001f60", "\\", "%", "%2", "%zz", "&#0;", "&#1;", "&;", "&#x110000;", "%c3%"],
)
def test_what_only_looks_like_an_escape_stays_and_hides_no_secret(text: str) -> None:
    assert redacted(f"{text}.", "planted-secret") == f"{text}."
    assert redacted(f"{text}planted-secret{text}.", "planted-secret").count("planted") == 0
    assert redacted(f"{text} planted%2Dsecret {text}.", "planted-secret") == f"{text} {HIDDEN} {text}."


@pytest.mark.parametrize("encode", [html.escape, encode_url, lambda secret: html.escape(encode_json(secret))])
def test_a_secret_with_the_escapes_of_another_language_is_hidden(encode: Callable[[str], str]) -> None:
    secret = 'planted<%ac&lt;>"\\nsecret'
    assert redacted(f"before {encode(secret)} after", secret) == f"before {HIDDEN} after"


def test_a_secret_is_hidden_in_the_base64_of_urls() -> None:
    encoded = urlsafe_b64encode(b"planted>>>???").decode()
    assert {"-", "_"} < set(encoded)
    assert redacted(encoded, "planted>>>???").rstrip("=") == HIDDEN


def test_a_secret_is_hidden_in_every_line_of_a_text() -> None:
    forms = (SECRET, encode_url(SECRET), encode_json(SECRET), encode_url(encode_json(SECRET)))
    text = "".join(f"{number}%2Fof {form} end\n" for number, form in enumerate(forms))
    assert redacted(text, SECRET) == "".join(f"{number}%2Fof {HIDDEN} end\n" for number in range(len(forms)))


def test_escapes_beside_a_secret_stay() -> None:
    assert (
        redacted("%E2%82planted%2Dsecret%C3%9C\\ud83d\\ude00", "planted-secret")
        == f"%E2%82{HIDDEN}%C3%9C\\ud83d\\ude00"
    )


@pytest.mark.parametrize(
    ("name", "address", "shown"),  # each has a secret of its own: they stay hidden in this process
    [
        ("https_proxy", "http://user:only-in-a-proxy@proxy:3128", "only-in-a-proxy"),
        ("HTTP_PROXY", "http://user:in-a-proxy-only@proxy:3128", "in-a-proxy-only"),
        ("https_proxy", "user:without-a-scheme@proxy:3128", "without-a-scheme"),
        ("https_proxy", "http://user:only/in a@proxy@proxy:3128", "only/in a@proxy"),
        ("https_proxy", "http://user:only%2Fin-a-proxy@proxy:3128", "only/in-a-proxy"),
        ("https_proxy", "http://no-user-but-a-token@proxy:3128", "no-user-but-a-token"),
    ],
)
def test_the_password_of_a_proxy_of_the_environment_is_hidden(name: str, address: str, shown: str) -> None:
    hide_proxies({name: address, "ADDRESS": "http://user:of-no-proxy@host"})
    assert redact(f"407: {shown} of-no-proxy") == f"407: {HIDDEN} of-no-proxy"


@pytest.mark.parametrize("text", ["s", "a s", "s b", "ss", "a s s"])
def test_the_shortest_secret_is_hidden_also_at_the_end_of_a_text(text: str) -> None:
    secret = "x" * (SHORTEST - 1) + "y"
    assert redacted(text.replace("s", secret), secret) == text.replace("s", HIDDEN)


@pytest.mark.parametrize(
    ("secret", "shown"),
    [
        ("robot:planted-secret", "planted-secret"),
        (" planted-secret ", "planted-secret"),
        ("robot:planted-secret", "Basic " + b64encode(b"robot:planted-secret").decode()),
        ("Bearer planted-token", "planted-token"),
        ("http://user:planted-word@proxy.example:3128", "planted-word"),
        ("http://user:planted-word@proxy.example:3128", "Basic " + b64encode(b"user:planted-word").decode()),
        ("sv=2024-11-04&sig=pla%2Fnted%3D%3D&se=2027", "pla%2Fnted%3D%3D"),
        ("sv=2024-11-04&sig=pla%2Fnted%3D%3D&se=2027", "pla/nted=="),
        (SERVICE_ACCOUNT, LINES[1]),
        (SERVICE_ACCOUNT, PEM),
    ],
)
def test_what_is_secret_by_itself_is_hidden_without_the_rest(secret: str, shown: str) -> None:
    said = redacted(f"refused: {shown}", secret)
    assert said.startswith("refused: ")
    assert HIDDEN in said
    assert not [word for word in ("planted", "nted", *LINES, b64encode(b"planted").decode()[:8]) if word in said]


def test_a_token_that_a_library_has_made_is_hidden_whole_or_cut() -> None:
    header, claims = (b64encode(part).decode().rstrip("=") for part in (b'{"alg":"RS256"}', b'{"iss":"robot"}'))
    assert (
        redacted(f"assertion={header}.{claims}.c2ln-b_F0&a {header}.{claims[:-1]}") == f"assertion={HIDDEN}&a {HIDDEN}"
    )
    assert redacted(f"{header}.txt, eyJ.eyJ") == f"{header}.txt, eyJ.eyJ"


def test_a_short_secret_is_not_looked_for_among_the_letters_of_other_words() -> None:
    short = "lakehouse"[: SHORTEST - 1]
    assert redacted(f"the {short} is {short}se", short) == f"the {short} is {short}se"
    assert redacted("the lakehouse", "lakehous") == f"the {HIDDEN}e"


def test_of_secrets_that_begin_alike_each_is_hidden_whole() -> None:
    assert redacted("planted-1, planted-12", "planted-1", "planted-12") == f"{HIDDEN}, {HIDDEN}"


@given(st.lists(st.text("ab", min_size=6, max_size=12)), st.lists(st.text("ab", max_size=12)), st.data())
def test_from_left_to_right_the_longest_secret_is_hidden(
    secrets: list[str], others: list[str], data: st.DataObject
) -> None:
    text = "".join(data.draw(st.permutations([*secrets, *secrets, *others])))
    pattern = "|".join(sorted((each for each in secrets if len(each) >= SHORTEST), key=len, reverse=True))
    assert redacted(text, *secrets) == (re.sub(pattern, HIDDEN, text) if pattern else text)


def test_what_was_obtained_is_forgotten_after_many_others_and_what_the_config_has_is_not() -> None:
    redaction = Redaction(most_obtained=2)
    redaction.hide("planted-in-config")
    for number in range(5):
        redaction.hide_obtained(f"{number}-planted-token")
    assert redaction.redact("planted-in-config 0-planted-token") == f"{HIDDEN} 0-planted-token"
    assert redaction.redact("3-planted-token 4-planted-token") == f"{HIDDEN} {HIDDEN}"


def test_what_is_too_short_to_be_looked_for_displaces_nothing() -> None:
    redaction = Redaction(most_obtained=1)
    redaction.hide_obtained("planted-token")
    for _ in range(3):
        redaction.hide_obtained("short")
    assert redaction.redact("planted-token") == HIDDEN


def test_what_is_obtained_again_counts_as_new() -> None:
    redaction = Redaction(most_obtained=2)
    for number in (1, 2, 3, 1, 4, 5):
        redaction.hide_obtained(f"{number}-planted-token")
    assert redaction.redact("1-planted-token") == HIDDEN


def test_a_secret_is_hidden_before_a_text_is_cut_in_the_middle_of_it() -> None:
    hide_obtained("planted-where-texts-are-cut")
    before = "x" * (LONGEST_QUOTE - len(HIDDEN) - 1)
    assert redact_and_shorten(f"{before} planted-where-texts-are-cut.") == f"{before} {HIDDEN}"
    assert redact_and_shorten(f"{before} planted-where-texts-are-cut, sorry") == f"{before} {HIDDEN} …"


def test_the_answer_of_a_server_is_quoted_in_one_line_and_without_a_full_stop() -> None:
    assert redact_and_shorten("refused:\n  not allowed.\n") == "refused: not allowed"
