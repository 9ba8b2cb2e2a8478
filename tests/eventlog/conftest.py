"""Assertions in the shared suite are explained like those in test files."""

import pytest

pytest.register_assert_rewrite("tests.eventlog.contract")
