"""The lookups that the address of a list may contain."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def filter_parameters(filters: Sequence[Any]) -> set[str]:
    """The query parameters of the declared filters.

    Django would accept any column and lookup: by trying values a user could find out the content of
    columns that are not shown, and most columns have no index.
    """
    return {getattr(item, "parameter_name", None) or f"{item}__exact" for item in filters}
