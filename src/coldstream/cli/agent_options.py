"""What `coldstream agent run` is told, whether by its command line or by a file."""

from __future__ import annotations

from dataclasses import dataclass
from enum import StrEnum
from pathlib import Path
from socket import gethostname
from typing import TYPE_CHECKING, Annotated

import typer

from coldstream.cli.options import duration_option, size_option
from coldstream.deployment import (
    ENV_CLAIM_FUNCTION,
    ENV_MANAGEMENT_URI,
    ENV_QUEUE_URL,
    ENV_STREAM_URI,
)
from coldstream.errors import InvalidInputError

if TYPE_CHECKING:
    from coldstream.agent.settings import AgentSettings

_MIB = 2**20
#: At the end of the help of what has no default; typer would call "required" one.
REQUIRED = " Required, here or in --config."


class LogFormat(StrEnum):
    """How the agent says things on stderr."""

    TEXT = "text"
    JSON = "json"


@dataclass(frozen=True, slots=True)
class AgentOptions:
    """The options of the command, which say what each is; files are checked where they are read."""

    data_dir: Annotated[
        str,
        typer.Option(
            "--data-dir",
            help="Holds one directory a stream, e.g. /var/lib/rabbitmq/mnesia/NODE/stream."
            f"{REQUIRED}",
            show_default=False,
        ),
    ] = ""
    committed: Annotated[
        str,
        typer.Option(
            help='What is committed: "broker" to have the broker of this node prove it (needs'
            ' --stream-uri), "all" if you know that everything in the files is, or a JSON file'
            " {directory: last committed offset}, read again when it changes."
            f"{REQUIRED}",
            show_default=False,
        ),
    ] = ""
    stream_uri: Annotated[
        str,
        typer.Option(
            envvar=ENV_STREAM_URI,
            help="Stream port of this node's own broker, rabbitmq-stream://USER:PASSWORD@HOST:PORT,"
            " or rabbitmq-stream+tls://. The user needs the right to read the streams.",
        ),
    ] = ""
    management_uri: Annotated[
        str,
        typer.Option(
            envvar=ENV_MANAGEMENT_URI,
            help="Management API of the broker, http://USER:PASSWORD@HOST:PORT, which says what the"
            " streams are called (--names may say it instead) and which members they have: without"
            " it a range is given up, and a stream begun of which retention has taken the"
            " beginning, with --last-copy only.",
        ),
    ] = ""
    once: Annotated[
        bool,
        typer.Option(
            "--once",
            help="Upload what is committed at the start, wait until the manifests have it, end."
            " What comes meanwhile, or a stream that appears, is for the next run.",
        ),
    ] = False
    names: Annotated[
        Path | None,
        typer.Option(help='JSON file {directory: {"vhost": V, "queue": Q}} for listings.'),
    ] = None
    cluster: Annotated[str, typer.Option(help="Cluster name for listings.")] = ""
    fragment_size: Annotated[
        int, size_option("--fragment-size", "Size of a full fragment.", default="64MiB", least=128)
    ] = 64 * _MIB
    flush: Annotated[
        int,
        duration_option(
            "--flush --flush-seconds",
            "A chunk waits at most this long for its fragment to fill.",
            default="60s",
        ),
    ] = 60
    takeover: Annotated[
        int,
        duration_option(
            "--takeover --takeover-seconds",
            "The agent beside a stream's writer uploads; another member's agent does where nothing"
            " is published for so long behind the flush time.",
            default="60s",
        ),
    ] = 60
    memory: Annotated[
        int, size_option("--memory", "All upload buffers together.", default="256MiB", least=128)
    ] = 256 * _MIB
    uploads: Annotated[int, typer.Option(help="Uploads at the same time.")] = 3
    held_bytes: Annotated[
        int,
        size_option(
            "--held-bytes",
            "How much of the disk files may take that the broker has removed and that are not"
            " uploaded yet; beyond that the oldest are let go.",
            default="8GiB",
            least=0,
        ),
    ] = 8 * 2**30
    upload_rate: Annotated[
        int,
        size_option(
            "--upload-rate",
            "Bytes a second that all uploads together may take; 0 for no limit.",
            default="0",
            least=0,
        ),
    ] = 0
    upload_stall: Annotated[
        int,
        duration_option(
            "--upload-stall",
            "An upload of which no byte has moved for so long is given up, and tried again; while"
            " bytes move it has no limit.",
            default="30s",
        ),
    ] = 30
    upload_answer: Annotated[
        int,
        duration_option(
            "--upload-answer",
            "How long S3 may take to answer once it has all of an upload.",
            default="60s",
        ),
    ] = 60
    last_copy: Annotated[
        bool,
        typer.Option(
            "--last-copy",
            help="You say that no other node has older data of these streams. What was lost here"
            " before it was uploaded is then declared lost for ever, as a hole that every reader is"
            " told of, and the stream goes on.",
        ),
    ] = False
    queue_url: Annotated[
        str,
        typer.Option(
            envvar=ENV_QUEUE_URL, help="Commit queue, asked when a manifest does not follow."
        ),
    ] = ""
    node: Annotated[
        str, typer.Option(help="Name of this machine in heartbeats; its host name by default.")
    ] = ""
    metrics_port: Annotated[
        int | None,
        typer.Option(
            min=1,
            max=65535,
            help="Serve /metrics for Prometheus, and /healthz, at this port.",
            show_default="no such port",
        ),
    ] = None
    metrics_address: Annotated[
        str,
        typer.Option(
            help="IP address at which they are served, to all who can reach it and without TLS:"
            " 0.0.0.0 and :: for all of this machine's.",
        ),
    ] = "127.0.0.1"
    claim_function: Annotated[
        str,
        typer.Option(
            envvar=ENV_CLAIM_FUNCTION,
            help="Function that claims and commits for agents, which have no right to. Without it"
            " the agent does so itself, and needs the rights of an operator.",
        ),
    ] = ""
    log: Annotated[
        LogFormat,
        typer.Option(
            help="What is said on stderr: text for people, or one JSON object a line.",
        ),
    ] = LogFormat.TEXT
    as_json: Annotated[bool, typer.Option("--json", help="Report as JSON on stdout.")] = False

    def directory(self) -> Path:
        """Where the streams are.

        Raises:
            InvalidInputError: it is empty; as a path it would be the working directory.
        """
        if not self.data_dir:
            raise InvalidInputError(
                "--data-dir is empty; give the directory that holds one directory a stream, here or"
                " as data_dir in the file of --config"
            )
        return Path(self.data_dir)

    def check_given(self) -> None:
        """See that no value is wrong by itself; `settings` sees to those that it takes.

        Raises:
            InvalidInputError: says which.
        """
        if not self.upload_stall or not self.upload_answer:
            raise InvalidInputError("--upload-stall and --upload-answer are more than 0 s")

    def check(self) -> None:
        """See that nothing is wrong or missing that can be seen without asking anybody.

        Raises:
            InvalidInputError: says what to give.
        """
        self.check_given()
        self.directory()
        if not self.committed:
            raise InvalidInputError(
                '--committed is missing; give "broker", "all" or a file of offsets, here or as'
                " committed in the file of --config"
            )
        if self.committed == "broker" and not self.stream_uri:
            raise InvalidInputError("--committed broker needs --stream-uri")
        if self.committed == "broker" and not self.management_uri and self.names is None:
            raise InvalidInputError(
                "--committed broker needs --management-uri, or --names, to know what streams are"
                " called"
            )

    def settings(self, bucket: str) -> AgentSettings:
        """The agent's own settings.

        Args:
            bucket: what messages call the bucket.
        """
        from coldstream.agent.settings import AgentSettings

        return AgentSettings(
            target_size=self.fragment_size,
            flush_ms=self.flush * 1000,
            takeover_seconds=self.takeover,
            memory_budget=self.memory,
            uploads=self.uploads,
            held_bytes=self.held_bytes,
            upload_rate=self.upload_rate,
            once=self.once,
            last_copy=self.last_copy,
            bucket=bucket,
            node=self.node or gethostname(),
        )
