"""How to reach brokers is passed on as every client of theirs takes it."""

from __future__ import annotations

import ssl

from resilin.eventlog.kafka import KafkaConnection

WORD = "open sesame"


def test_plain_text_is_the_default_and_asks_for_nothing_else() -> None:
    assert KafkaConnection("one:9092,two:9092").client_options() == {
        "bootstrap_servers": "one:9092,two:9092",
        "security_protocol": "PLAINTEXT",
    }


def test_a_login_is_passed_on_only_where_the_protocol_has_one() -> None:
    connection = KafkaConnection(
        "one:9092", "SASL_PLAINTEXT", sasl_username="resilin-admission", sasl_password=WORD
    )
    assert connection.client_options() == {
        "bootstrap_servers": "one:9092",
        "security_protocol": "SASL_PLAINTEXT",
        "sasl_mechanism": "SCRAM-SHA-512",
        "sasl_plain_username": "resilin-admission",
        "sasl_plain_password": WORD,
    }
    plain = KafkaConnection("one:9092", sasl_username="resilin-admission", sasl_password=WORD)
    assert "sasl_plain_password" not in plain.client_options()


def test_encryption_verifies_the_brokers() -> None:
    for protocol in ("SSL", "SASL_SSL"):
        context = KafkaConnection("one:9092", protocol).client_options()["ssl_context"]
        assert isinstance(context, ssl.SSLContext)
        assert context.verify_mode is ssl.CERT_REQUIRED
        assert context.check_hostname


def test_a_password_is_never_shown() -> None:
    assert WORD not in repr(KafkaConnection("one:9092", sasl_password=WORD))
