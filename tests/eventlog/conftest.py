"""Assertions in the shared suites are explained like those in test files."""

import pytest

pytest.register_assert_rewrite("tests.eventlog.contract", "tests.eventlog.topic_contract")
