"""Small files that claim gigabytes, or unpack to them: refused in one line, within the memory that a command is allowed."""

import pytest
from bombs import BOMBS, LIMIT, burst, fitted, plain_inputs

from dkl.cli.main import BAD_INPUT, RESOURCES
from dkl.errors import StoreError

PLAIN = ("chunk of zstd", "config.json of lists")
SPARE = 200_000_000
"""Bytes beyond the limit that a refusal may take; a process that reads nothing takes a fifth of the limit."""


@pytest.fixture(scope="module")
def inputs(tmp_path_factory):
    folder = tmp_path_factory.mktemp("inputs")
    plain_inputs(folder)
    fitted(folder)
    return folder


@pytest.mark.parametrize(
    "name", [name if name in PLAIN else pytest.param(name, marks=pytest.mark.exhaustive) for name in BOMBS]
)
def test_a_bomb_is_refused_within_the_limit(name, inputs):
    found = burst(name, inputs)
    assert found.code in (BAD_INPUT, RESOURCES, StoreError.exit_status), found
    assert len(found.message.splitlines()) == 1, found
    assert found.peak <= LIMIT + SPARE, found
