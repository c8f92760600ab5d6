"""What holds for all tests."""

import pytest


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Networks made in this machine share it with each other badly: their tests run one after another."""
    for item in items:
        if item.get_closest_marker("netadmin"):
            item.add_marker(pytest.mark.xdist_group("network"))
