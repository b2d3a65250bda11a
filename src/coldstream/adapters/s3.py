"""The object store on S3 by obstore (Rust): for the agent and the reader, which move the bytes.

It imports in 16 ms and sends a buffer without copying it in Python. The Lambdas use `s3_boto`
instead, because boto3 is in their runtime and obstore would only make the bundle larger. Both list
by boto3 (`s3_list`), because obstore cannot say every key.
"""

from __future__ import annotations

import os
import re
import threading
from collections.abc import Callable, Mapping
from datetime import timedelta
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import obstore
from obstore.exceptions import (
    AlreadyExistsError as ObstoreAlreadyExistsError,
)
from obstore.exceptions import (
    BaseError,
    PreconditionError,
    UnauthenticatedError,
)
from obstore.exceptions import (
    NotFoundError as ObstoreNotFoundError,
)
from obstore.exceptions import (
    PermissionDeniedError as ObstorePermissionDeniedError,
)
from obstore.store import S3Store

from coldstream.adapters.absence import telling_absence
from coldstream.adapters.answers import ForeignAnswerError, only_of_aws
from coldstream.adapters.bodies import check_body
from coldstream.adapters.forks import check_not_forked, own_connections
from coldstream.adapters.remedies import remedy_for
from coldstream.adapters.s3_list import Lister
from coldstream.adapters.sessions import new_session
from coldstream.adapters.settings import (
    DEFAULT_REGION,
    MisconfiguredError,
    check_bucket,
    no_bucket,
    resolve_region,
)
from coldstream.errors import (
    AlreadyExistsError,
    ColdstreamError,
    CorruptDataError,
    NotFoundError,
    PermissionDeniedError,
    UnavailableError,
    UnknownOutcomeError,
)
from coldstream.fragment import Buffer
from coldstream.ports import ObjectInfo

if TYPE_CHECKING:
    from mypy_boto3_s3 import S3Client
    from obstore.auth.boto3 import Boto3CredentialProvider
    from obstore.store import ClientConfig, S3Config

_WRITE_ID = "write-id"
_CODE = re.compile(r"<Code>([A-Za-z0-9.]{1,64})</Code>")
_MESSAGE = re.compile(r"<Message>([^<\n]{1,300})")
_LONGEST = 300
_AT_ONCE = 20
_CREDENTIALS = (
    "set AWS_PROFILE, or AWS_ACCESS_KEY_ID and AWS_SECRET_ACCESS_KEY, or run it where a role gives"
    " credentials; see `aws sts get-caller-identity`"
)
_T = TypeVar("_T")


def open_store(
    bucket: str,
    *,
    region: str = "",
    endpoint: str = "",
    environment: Mapping[str, str] | None = None,
) -> S3Store:
    """An obstore S3 store from the same environment variables that every AWS SDK reads.

    Only the endpoint and the region are read here; without keys in the environment, boto3's chain
    (profile, container, instance role) is asked, so an agent on EC2 needs no keys.

    Args:
        bucket: name.
        region: of it; "" for what the environment says.
        endpoint: URL of S3; "" for what the environment says.
        environment: variables; those of the process by default.

    Raises:
        MisconfiguredError: no bucket can be called so, or there are no credentials.
    """
    check_bucket(bucket)
    env = os.environ if environment is None else environment
    config: S3Config = {
        # S3 computes the same CRC over the whole object and refuses one that differs.
        "checksum_algorithm": "CRC64NVME",
        "conditional_put": "etag",
        "region": region or _region(env),
    }
    client: ClientConfig = {"timeout": timedelta(seconds=120), "connect_timeout": "5s"}
    endpoint = endpoint or env.get("AWS_ENDPOINT_URL_S3") or env.get("AWS_ENDPOINT_URL") or ""
    plain = endpoint.startswith("http://")
    if endpoint:
        config["endpoint"] = endpoint
        client["allow_http"] = plain
    # To sign a body means its SHA-256, which costs more CPU than all else of an upload. Over TLS
    # nobody can change it on the way; without, only the signature keeps body and checksum together.
    config["unsigned_payload"] = not plain
    arguments: dict[str, Any] = {}
    if env.get("AWS_ACCESS_KEY_ID") and env.get("AWS_SECRET_ACCESS_KEY"):
        config["access_key_id"] = env["AWS_ACCESS_KEY_ID"]
        config["secret_access_key"] = env["AWS_SECRET_ACCESS_KEY"]
        if env.get("AWS_SESSION_TOKEN"):
            config["session_token"] = env["AWS_SESSION_TOKEN"]
    else:
        arguments["credential_provider"] = _credentials()
    return S3Store(
        bucket,
        config=config,
        client_options=client,
        retry_config={"max_retries": 5, "retry_timeout": timedelta(seconds=60)},
        **arguments,
    )


def _region(environment: Mapping[str, str]) -> str:
    from botocore.exceptions import BotoCoreError

    try:
        return resolve_region(environment) or DEFAULT_REGION
    except BotoCoreError as exc:
        raise MisconfiguredError(str(exc), remedy=_CREDENTIALS) from exc


#: boto3 renews what expires ten minutes before it does, at the latest. The provider's own half hour
#: would go on with it for twenty minutes after its end.
_FRESH = timedelta(minutes=9)


def _credentials() -> Boto3CredentialProvider:
    from botocore.exceptions import BotoCoreError
    from obstore.auth.boto3 import Boto3CredentialProvider

    try:
        return Boto3CredentialProvider(ttl=_FRESH)
    except BotoCoreError as exc:
        raise MisconfiguredError(str(exc), remedy=_CREDENTIALS) from exc
    except ValueError as exc:  # what obstore raises where the whole chain has none
        raise MisconfiguredError("no AWS credentials are found", remedy=_CREDENTIALS) from exc


class S3ObjectStore:
    """The `ObjectStore` port on one bucket.

    Args:
        bucket: name.
        region: of it; "" for what the environment says.
        endpoint: URL of S3; "" for what the environment says.
        store: an open obstore store, for tests.
        put_attempts: how often a PUT without an answer is sent before it counts as unknown.
    """

    def __init__(
        self,
        *,
        bucket: str,
        region: str = "",
        endpoint: str = "",
        store: S3Store | None = None,
        put_attempts: int = 4,
    ) -> None:
        self._translated = partial(_translated, bucket=bucket)
        self._opened = store or open_store(bucket, region=region, endpoint=endpoint)
        self._put_attempts = put_attempts
        self._bucket = bucket
        self._lister: Lister | None = None
        self._lock = threading.Lock()

    @property
    def _store(self) -> S3Store:
        """What is asked; raises ForkedError."""
        check_not_forked()
        return self._opened

    def put(self, key: str, body: Buffer, *, write_id: str, crc: int | None = None) -> None:
        check_body(key, body, crc)
        for _ in range(self._put_attempts):
            try:
                obstore.put(
                    self._store,
                    key,
                    body,
                    attributes={_WRITE_ID: write_id},
                    mode="create",
                    use_multipart=False,
                )
                return
            except (ObstoreAlreadyExistsError, PreconditionError) as exc:
                written_by = self._written_by(key)
                if written_by == write_id:
                    return
                if written_by is None:
                    continue  # 409: another PUT is under way, maybe an earlier attempt of ours
                raise AlreadyExistsError("the key is taken by another write", key=key) from exc
            except (BaseError, OSError) as exc:
                error = self._translated(exc, key)
                if isinstance(error, MisconfiguredError) or not isinstance(error, UnavailableError):
                    raise error from exc
                # No answer. The same bytes go out again under the same key and write id: whichever
                # arrives first wins, and the other finds its own id there.
                if self._written_by(key) == write_id:
                    return
        raise UnknownOutcomeError("the store gave no answer to a PUT", key=key)

    def _written_by(self, key: str) -> str | None:
        """The write id of the object under `key`, "" if it has none; None if there is no object
        or no answer."""
        try:
            found = obstore.get(self._store, key, options={"head": True})
        except (BaseError, OSError):
            return None
        if not found.meta["e_tag"]:
            return None
        value = found.attributes.get(_WRITE_ID)
        return value if isinstance(value, str) else ""

    def _size(self, key: str) -> int | None:
        """Size of the object under `key`; None if there is no object or no answer."""
        try:
            found = obstore.head(self._store, key)
        except (BaseError, OSError):
            return None
        return found["size"] if found["e_tag"] else None

    def _translating(self, call: Callable[[], _T], key: str) -> _T:
        try:
            return call()
        except (BaseError, OSError) as exc:
            raise self._translated(exc, key) from exc

    def _reading(self, call: Callable[[], _T], key: str) -> _T:
        return telling_absence(self, key, lambda: self._translating(call, key))

    def get(self, key: str, start: int, end: int) -> Buffer:
        try:
            data = self._reading(
                lambda: obstore.get_range(self._store, key, start=start, end=end), key
            )
        except UnavailableError:
            # obstore has no error of its own for a range outside the object.
            size = self._size(key)
            if size is None or end <= size:
                raise
            raise CorruptDataError(f"the object ends at {size}, not at {end}", key=key) from None
        if len(data) != end - start:
            raise CorruptDataError(
                f"bytes {start}-{end} were asked, the object gave {len(data)}", key=key
            )
        return memoryview(data)

    def get_all(self, key: str, *, limit: int) -> bytes:
        found = self._reading(lambda: obstore.get(self._store, key), key)
        if not found.meta["e_tag"]:  # which every object has, and no page of a proxy's
            foreign = ForeignAnswerError(said="an object without an ETag")
            raise UnavailableError(str(foreign), key=key, remedy=remedy_for("", foreign))
        if found.meta["size"] > limit:
            raise CorruptDataError(f"the object has more than {limit} bytes", key=key)
        return bytes(self._translating(found.bytes, key))

    def get_suffix(self, key: str, length: int) -> bytes:
        def suffix() -> bytes:
            return bytes(
                obstore.get(self._store, key, options={"range": {"suffix": length}}).bytes()
            )

        try:
            return self._reading(suffix, key)
        except UnavailableError:
            if self._size(key) != 0:
                raise
            return b""  # no range of an empty object can be satisfied

    def level(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[str]:
        return self._lists().level(prefix, start_after=start_after, limit=limit)

    def list(self, prefix: str, *, start_after: str = "", limit: int = 1000) -> list[ObjectInfo]:
        return self._lists().list(prefix, start_after=start_after, limit=limit)

    def _lists(self) -> Lister:
        """What lists this bucket; made when it is first asked, because boto3 takes a while."""
        with self._lock:
            if self._lister is None:
                self._lister = Lister(client=_boto_client(self._opened), bucket=self._bucket)
            return self._lister


def _boto_client(store: S3Store) -> S3Client:
    """A boto3 client of the same S3, with the same keys or the same chain that finds them."""
    from botocore.config import Config

    config = store.config

    def said(name: str) -> str | None:
        value = config.get(name)
        return str(value) if value else None

    made = new_session().client(
        "s3",
        region_name=said("region"),
        endpoint_url=said("endpoint"),
        aws_access_key_id=said("access_key_id"),
        aws_secret_access_key=said("secret_access_key"),
        aws_session_token=said("session_token"),
        config=Config(
            retries={"mode": "standard", "max_attempts": 6},
            connect_timeout=5,
            read_timeout=30,
            max_pool_connections=_AT_ONCE,
        ),
    )
    only_of_aws(own_connections(made))
    return made


def _translated(exc: BaseException, key: str, *, bucket: str = "") -> ColdstreamError:
    """The error of ours that an obstore error means."""
    code, said = _said(str(exc))
    if code == "NoSuchBucket":  # a 404 like that of a missing object, which is quite another thing
        return no_bucket(bucket, key)
    if isinstance(exc, FileNotFoundError | ObstoreNotFoundError):
        return NotFoundError("no such object", key=key)
    if isinstance(exc, ObstorePermissionDeniedError | UnauthenticatedError):
        return PermissionDeniedError(
            f"S3 refused the request{code and f': {code}'}", key=key, remedy=remedy_for(code)
        )
    if isinstance(exc, ObstoreAlreadyExistsError | PreconditionError):
        return AlreadyExistsError("the key is taken by another write", key=key)
    return UnavailableError(f"S3 did not answer properly: {said}", key=key, remedy=remedy_for(code))


def _said(text: str) -> tuple[str, str]:
    """S3's own code, "" if there is none, and the error in one line.

    obstore gives the answer's body, XML, and behind it how Rust has it in memory, which helps
    nobody.
    """
    answer = text.split("Debug source:", 1)[0]
    code = _CODE.search(answer)
    if code is None:
        return "", " ".join(answer.split())[:_LONGEST]
    words = _MESSAGE.search(answer)
    return code[1], f"{code[1]}: {words[1]}" if words else code[1]
