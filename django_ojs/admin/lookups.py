"""What may be asked of a list in its address."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any


def filter_parameters(filters: Sequence[Any]) -> set[str]:
    """The parameters in the address of a list that its filters read.

    Django takes any column and lookup there: by trying values whoever sees the list could find out
    what a column holds that it does not show, and most columns have no index.
    """
    return {getattr(item, "parameter_name", None) or f"{item}__exact" for item in filters}
