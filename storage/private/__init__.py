"""The private store: datasets, their blocks, and the one door to their rows.

`dataset` is what is declared, `files` and `parsing` take rows in, `store` keeps them behind grants.
"""

from storage.private.dataset import Dataset
from storage.private.store import PrivateRows, PrivateStore

__all__ = ["Dataset", "PrivateRows", "PrivateStore"]
