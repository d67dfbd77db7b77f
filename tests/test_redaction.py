import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from pikobot.redaction import MAX_KEY_BLOCK_CHARS, REDACTED, redact

KEY_LINES = "\n".join(["MIIEvQIBADANBgkqhkiG9w0BAQEFAASCBKcwggSjAgEAAoIBAQC7" * 1] * 3)
JWT = "eyJhbGciOiJIUzI1NiJ9.eyJzdWIiOiIxMjM0In0.dBjftJeZ4CVP-mB92K27uhbUJU1p1r_wW1gFWFOEjXk"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("my key is sk-abcDEF1234567890abcd.", "my key is sk-[redacted]."),
        ("Authorization: Bearer abc.def-12345", "Authorization: Bearer [redacted]"),
        ("AKIAIOSFODNN7EXAMPLE", "[redacted]"),
        ("ghp_0123456789abcdefghij0123456789abcdef", "[redacted]"),
        ("github_pat_11ABCDEFG0123456789_abc", "[redacted]"),
        ("https://api.telegram.org/bot123456789:AAEabcdefghijklmnopqrstuvwxyz0123456/getMe",
         "https://api.telegram.org/bot[redacted]/getMe"),
        (f"token {JWT}!", "token [redacted]!"),
        ("password=hunter2", "password=[redacted]"),
        ("DB_PASSWORD='x y z' next", "DB_PASSWORD='[redacted]' next"),
        ("my Password is hunter2, ok?", "my Password is [redacted], ok?"),
        ('{"api_key": "it\'s a \\"b", "x": 1}', '{"api_key": "[redacted]", "x": 1}'),
        ('{\\"api_key\\": \\"abc\\", \\"x\\": 1}', '{\\"api_key\\": \\"[redacted]\\", \\"x\\": 1}'),
        ("postgres://bob:s3cr3t@host/db", "postgres://bob:[redacted]@host/db"),
        ("token: abcd12345", "token: [redacted]"),
        ("密码：春天123，记住", "密码：[redacted]，记住"),
        ("我的密码是 hunter2，别告诉别人", "我的密码是 [redacted]，别告诉别人"),
        ("口令：「芝麻 开门」好", "口令：「[redacted]」好"),
        ("api密钥=abc", "api密钥=[redacted]"),
        ("任务令牌：abcd12345", "任务令牌：[redacted]"),
        (f"-----BEGIN RSA PRIVATE KEY-----\n{KEY_LINES}\n-----END RSA PRIVATE KEY-----\ntail", "[redacted]\ntail"),
        (f"-----BEGIN PRIVATE KEY-----\n{KEY_LINES}\nand then a story", "[redacted]\nand then a story"),
    ],
)  # fmt: skip
def test_common_credentials_are_taken_out(text: str, expected: str) -> None:
    assert redact(text) == expected


@pytest.mark.parametrize(
    "text",
    [
        "the password is wrong",
        "密码是对的",
        "the bearer of good news, the bearer certificate",
        "max_tokens=12345678, tokens: 600, token: 5",
        "secretary: Anna42, secret: I love her",
        "task-oriented, risk-averse, sk-learn-like",
        "我搬到了波尔图，电话 13800138000，时间 12:30",
        "see https://host/path:8080/a@b and bob@host",
        "",
    ],
)
def test_ordinary_text_stays(text: str) -> None:
    assert redact(text) == text


def test_given_secrets_are_taken_out_longest_first_and_short_ones_ignored() -> None:
    assert redact("abcd abcdef ab [redacted]", ["abcd", "abcdef", "ab", "", "redacted"]) == (
        f"{REDACTED} {REDACTED} ab [redacted]"
    )


def test_a_key_block_that_never_ends_does_not_swallow_what_follows() -> None:
    story = "a story. " * MAX_KEY_BLOCK_CHARS
    text = f"-----BEGIN PRIVATE KEY----- {story}-----END PRIVATE KEY-----"
    assert redact(text) == f"{REDACTED} {story}-----END PRIVATE KEY-----"


@settings(max_examples=50, deadline=None)
@given(
    secret=st.text(alphabet="xyz0♥密", min_size=4, max_size=12),
    around=st.text(alphabet="abc =:", max_size=20),
)
def test_a_given_secret_is_never_left(secret: str, around: str) -> None:
    assert secret not in redact(around + secret + around, [secret])


BEGINNINGS = (
    "-----BEGIN PRIVATE KEY-----", "-----BEGIN PRIVATE KEY-----\n" + "A" * 40, "-----BEGIN ", "eyJ", "eyJaaaaa.",
    "sk-", "bearer ", "password=", "password is ", 'password:"\\', "密码：", "secret=token=", "://a:", "://",
    "1234567:", "AKIA", '"', " ", "\\", "A",
)  # fmt: skip


@pytest.mark.parametrize("piece", BEGINNINGS)
def test_many_beginnings_are_no_trap(piece: str) -> None:
    assert redact(piece * (50_000 // len(piece)))


@pytest.mark.stress
@pytest.mark.parametrize("piece", BEGINNINGS)
def test_a_megabyte_of_beginnings_is_no_trap(piece: str) -> None:
    assert redact(piece * (1_000_000 // len(piece)))
