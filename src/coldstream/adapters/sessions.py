"""Sessions of boto3 that share what botocore reads of its descriptions of services.

Each session reads and parses them anew: 150 ms of CPU for a client of S3, and 15 ms where another
client of this process has asked before.
"""

from __future__ import annotations

from functools import cache
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import boto3


def new_session() -> boto3.session.Session:
    """A session of its own, as `boto3.session.Session()` makes one from the environment.

    Raises:
        botocore.exceptions.BotoCoreError: no such profile.
    """
    import boto3
    import botocore.session

    core: Any = botocore.session.get_session()
    descriptions = _descriptions(core.get_config_variable("data_path"))
    core.register_component("data_loader", descriptions)
    session = boto3.session.Session(botocore_session=core)
    if descriptions.search_paths[-1] in descriptions.search_paths[:-1]:
        descriptions.search_paths.pop()  # each session adds boto3's own
    return session


@cache
def _descriptions(path: str | None) -> Any:
    """What reads the files; it keeps what it has read, and changes none of it."""
    from botocore.loaders import create_loader

    return create_loader(path)
