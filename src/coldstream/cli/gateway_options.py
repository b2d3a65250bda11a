"""What `coldstream gateway run` is told."""

from __future__ import annotations

import os
import ssl
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.agent_options import LogFormat
from coldstream.cli.options import size_option
from coldstream.deployment import ENV_MANAGEMENT_URI, ENV_STREAM_URI
from coldstream.errors import InvalidInputError
from coldstream.read_policy import ReadPolicy

if TYPE_CHECKING:
    from coldstream.gateway.broker_tier import BrokerTier
    from coldstream.gateway.users import FileUsers, Users

_MIB = 2**20
_ENV = "COLDSTREAM_GATEWAY_"

#: Bytes of a key that are looked at.
_MAX_PEM = 64 * 2**10


@dataclass(frozen=True, slots=True)
class GatewayOptions:
    """The options of the command, which say what each is."""

    port: Annotated[
        int, typer.Option(envvar=f"{_ENV}PORT", min=0, max=65535, help="Where clients connect.")
    ] = 5553
    host: Annotated[
        str,
        typer.Option(
            envvar=f"{_ENV}HOST",
            help="Address to listen at; 0.0.0.0 for all. Passwords travel in the clear without"
            " --tls-cert.",
        ),
    ] = "127.0.0.1"
    users: Annotated[
        Path | None,
        typer.Option(
            envvar=f"{_ENV}USERS",
            help="File with lines user:password:regex of streams; the password may be a hash, see"
            " `coldstream gateway hash-password`. Read again at SIGHUP.",
        ),
    ] = None
    stream_uri: Annotated[
        str,
        typer.Option(
            envvar=ENV_STREAM_URI,
            help="Stream port of the broker, rabbitmq-stream://USER:PASSWORD@HOST:PORT, or"
            " rabbitmq-stream+tls://, for what is not in the remote tier yet. The user needs the"
            " right to read the streams, and with RabbitMQ 3.10 to write them, if consumers store"
            " offsets. Several nodes of one cluster with spaces in between: the next is asked where"
            " one does not answer. History only without it.",
        ),
    ] = ""
    management_uri: Annotated[
        str,
        typer.Option(
            envvar=ENV_MANAGEMENT_URI,
            help="Management API of the broker, http://USER:PASSWORD@HOST:PORT, which says who may"
            " log in and read what, where there is no --users. The user needs the tag"
            " administrator. Several nodes as with --stream-uri.",
        ),
    ] = ""
    data_dir: Annotated[
        Path | None,
        typer.Option(
            "--data-dir",
            envvar=f"{_ENV}DATA_DIR",
            help="Stream directories of the broker of --stream-uri, if it is on this machine: the"
            " tail is read from its files then, as far as that broker proves them.",
        ),
    ] = None
    tls_cert: Annotated[
        Path | None,
        typer.Option(
            envvar=f"{_ENV}TLS_CERT",
            help="Certificate (PEM, with its chain). It and its key are read again at SIGHUP.",
        ),
    ] = None
    tls_key: Annotated[
        Path | None, typer.Option(envvar=f"{_ENV}TLS_KEY", help="Key of the certificate (PEM).")
    ] = None
    advertised_host: Annotated[
        str,
        typer.Option(
            envvar=f"{_ENV}ADVERTISED_HOST",
            help="Name by which clients find the gateway.",
            show_default="the address that they came by",
        ),
    ] = ""
    advertised_port: Annotated[
        int,
        typer.Option(
            envvar=f"{_ENV}ADVERTISED_PORT",
            min=0,
            max=65535,
            help="Port by which clients find it.",
            show_default="the port that they came by",
        ),
    ] = 0
    connections: Annotated[
        int, typer.Option(envvar=f"{_ENV}CONNECTIONS", min=1, help="Clients at once.")
    ] = 256
    subscriptions: Annotated[
        int,
        typer.Option(
            envvar=f"{_ENV}SUBSCRIPTIONS",
            min=1,
            help="Subscriptions of all clients together; each that reads holds a few MiB.",
        ),
    ] = 1024
    memory: Annotated[
        int,
        size_option(
            "--memory",
            "What all reads may have fetched ahead.",
            default="256MiB",
            least=2**20,
            envvar=f"{_ENV}MEMORY",
        ),
    ] = 256 * _MIB
    read_policy: Annotated[
        ReadPolicy,
        typer.Option(
            envvar=f"{_ENV}READ_POLICY",
            help="Where both tiers have what is read. not-in-mem: S3 all that the manifest has, the"
            " broker only what is newer; not-in-disk: the broker all that its log has, S3 what is"
            " older; force: S3 alone, and messages come when they are published there; disable: the"
            " broker alone, S3 is not read.",
        ),
    ] = ReadPolicy.NOT_IN_MEM
    metrics_port: Annotated[
        int | None,
        typer.Option(
            envvar=f"{_ENV}METRICS_PORT",
            min=0,
            max=65535,
            help="Serve /metrics and /healthz at this port.",
        ),
    ] = None
    metrics_address: Annotated[
        str, typer.Option(envvar=f"{_ENV}METRICS_ADDRESS", help="Address for them.")
    ] = "127.0.0.1"
    log: Annotated[
        LogFormat, typer.Option(envvar=f"{_ENV}LOG", help="How things are said on stderr.")
    ] = LogFormat.TEXT

    def check(self) -> None:
        """See that the options go together.

        Raises:
            InvalidInputError: they do not.
        """
        if self.users is None and not self.management_uri.split():
            raise InvalidInputError("who may log in? Give --users, or --management-uri")
        if self.data_dir is not None and not self.stream_uri.split():
            raise InvalidInputError(
                "--data-dir needs --stream-uri: files prove nothing without their broker"
            )
        local = (ReadPolicy.DISABLE, ReadPolicy.NOT_IN_DISK)
        if self.read_policy in local and not self.stream_uri.split():
            raise InvalidInputError(
                f"--read-policy {self.read_policy} needs --stream-uri: a broker that is read"
            )
        if self.read_policy is ReadPolicy.FORCE and self.data_dir is not None:
            raise InvalidInputError("--read-policy force reads no files, and --data-dir names some")
        if self.data_dir is not None:
            _check_listed(self.data_dir)
        if (self.tls_cert is None) != (self.tls_key is None):
            raise InvalidInputError("--tls-cert and --tls-key go together")

    def broker(self) -> BrokerTier | None:
        """What the tail is read from; None for history only.

        Raises:
            InvalidInputError: a URI is none.
        """
        from coldstream.broker.connection import StreamUri
        from coldstream.gateway.broker_tier import BrokerTier

        uris = [StreamUri.parse(each) for each in self.stream_uri.split()]
        return BrokerTier(uris[0], uris[1:]) if uris else None

    def load_users(self) -> Users:
        """Who may log in.

        Raises:
            InvalidInputError: the file, or the URI, is none.
        """
        from coldstream.broker.management import Management
        from coldstream.gateway.broker_users import BrokerUsers

        if self.users is not None:
            return self.load_user_file()
        first, *others = [Management.parse(each) for each in self.management_uri.split()]
        return BrokerUsers(first, others)

    def load_user_file(self) -> FileUsers:
        """Those of `--users`, which is given; raises as `load_users`."""
        from coldstream.gateway.users import read_users

        assert self.users is not None
        return read_users(self.users)

    def tls(self) -> ssl.SSLContext | None:
        """What clients are shown; None without a certificate.

        Raises:
            InvalidInputError: certificate or key cannot be used.
        """
        if self.tls_cert is None or self.tls_key is None:
            return None
        context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        try:
            context.load_cert_chain(self.tls_cert, self.tls_key, password="")
        except OSError as exc:
            words = f"--tls-cert and --tls-key cannot be used: {exc.strerror or exc}"
            if _has_passphrase(self.tls_key):
                words = f"--tls-key {self.tls_key} has a passphrase, which nobody can give here"
            raise InvalidInputError(words, key=str(self.tls_cert)) from exc
        return context

    def renew(self, context: ssl.SSLContext) -> None:
        """Have `context`, which `tls` made, show the certificate as its files are now.

        Who is connected goes on under the old one.

        Raises:
            InvalidInputError: as `tls`; the old one stays.
        """
        fresh = self.tls()

        def show(client: ssl.SSLObject, name: str | None, old: ssl.SSLContext) -> None:
            del name, old  # it is called without a name, too
            if fresh is not None:
                client.context = fresh

        # In place of loading into `context`: of two files that are just being replaced, one might
        # be taken and the other not.
        context.sni_callback = show


def _has_passphrase(key: Path) -> bool:
    """Whether a PEM file says so of its key: in its type (PKCS 8), or in a header before it."""
    try:
        with key.open("rb") as file:
            return b"ENCRYPTED" in file.read(_MAX_PEM)
    except OSError:
        return False


def _check_listed(directory: Path) -> None:
    """See that a directory can be read: else every tail would quietly come from the broker's port.

    Raises:
        InvalidInputError: it cannot.
    """
    try:
        with os.scandir(directory) as entries:
            next(entries, None)
    except OSError as exc:
        raise InvalidInputError(
            f"--data-dir cannot be read: {exc.strerror or exc}", key=str(directory)
        ) from exc
