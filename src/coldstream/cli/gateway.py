"""`coldstream gateway`: streams for stock clients, history and tail as one."""

from __future__ import annotations

import asyncio
import os
import secrets
import signal
import sys
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, contextmanager, suppress
from typing import TYPE_CHECKING

import typer

from coldstream.cli.agent_log import AgentLog
from coldstream.cli.agent_options import LogFormat
from coldstream.cli.exit_codes import exit_code_of
from coldstream.cli.gateway_options import GatewayOptions
from coldstream.cli.options import Where, with_options
from coldstream.errors import ColdstreamError, InvalidInputError

if TYPE_CHECKING:
    import ssl
    from concurrent.futures import Executor

    from coldstream.adapters.place import Remote
    from coldstream.agent.telling.notify import Manager
    from coldstream.gateway.site import Site

gateway_app = typer.Typer(
    no_args_is_help=True, help="Serves streams to stock RabbitMQ stream clients, read side."
)
_BLOCKING_THREADS, _GET_THREADS, _OFFSET_THREADS = 64, 32, 8
_RANGE, _IN_FLIGHT = 4 * 2**20, 16
#: At the start, for whether there is such a bucket.
_LOOK_SECONDS = 10.0


@gateway_app.callback()
@with_options
def gateway() -> None:
    """Streams for stock RabbitMQ clients: history from S3, the tail from the broker."""


@gateway_app.command("hash-password")
@with_options
def hash_password() -> None:
    """Make the hash of a password for the users file; reads the password from stdin.

    Example:

        coldstream gateway hash-password < password.txt
    """
    from coldstream.gateway.passwords import hashed

    typer.echo(hashed(sys.stdin.readline().rstrip("\r\n"), secrets.token_bytes(16)))


@gateway_app.command("run")
@with_options
def run(*, options: GatewayOptions, where: Where) -> None:
    r"""Serve the RabbitMQ stream protocol, read side, until it is stopped.

    A client changes nothing but the port: what the remote tier has comes from S3, what it has not
    yet from the broker of --stream-uri, each message once and in order. Nobody can publish, create
    or delete here. A line of the users file is user:password:regex of streams; the pattern must
    match the whole name of a queue of virtual host "/", VHOST/QUEUE of any other (and %2F/QUEUE of
    one of "/" whose name has a slash).

    Examples:

        coldstream gateway run --port 5553 --users users.txt
        coldstream gateway run --port 5553 --users users.txt \
            --stream-uri rabbitmq-stream://tier:SECRET@127.0.0.1:5552
    """
    log = AgentLog(options.log)
    early: list[int] = []
    # What is loaded now takes seconds, and until then the signal would end the process.
    signal.signal(signal.SIGHUP, lambda number, _: early.append(number))
    try:
        options.check()
        remote = where.connect()
        asyncio.run(_run(options, remote, log, early))
    except ColdstreamError as error:
        if options.log is not LogFormat.JSON:
            raise
        log.error(error)
        raise typer.Exit(exit_code_of(error)) from error


async def _run(
    options: GatewayOptions, remote: Remote, log: AgentLog, early: Sequence[int]
) -> None:
    """Serve; `early` holds what has come of SIGHUP so far."""
    from concurrent.futures import ThreadPoolExecutor

    from coldstream.agent.telling.metrics import serving
    from coldstream.agent.telling.notify import manager_of
    from coldstream.gateway.server import Server
    from coldstream.reader import keep_freed_memory

    keep_freed_memory()
    manager = manager_of(os.environ, os.getpid())
    end = asyncio.Event()
    loop = asyncio.get_running_loop()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, end.set)
    with ExitStack() as stack:
        pool = ThreadPoolExecutor(_BLOCKING_THREADS, thread_name_prefix="coldstream-gateway")
        stack.callback(pool.shutdown, wait=False, cancel_futures=True)
        site = _site(options, remote, log, pool, stack)
        tls = options.tls()
        # With nothing to read again, too: it would end what does not take it.
        loop.add_signal_handler(signal.SIGHUP, lambda: _reload(options, site, tls, log, manager))
        if early:
            _reload(options, site, tls, log, manager)
        await site.streams.names.refresh()  # a table that is not there is told at once
        with suppress(TimeoutError):  # without S3 there is still the tail to be served
            await asyncio.wait_for(loop.run_in_executor(pool, _see_bucket, remote), _LOOK_SECONDS)
        if options.metrics_port is not None:
            pages = serving(
                site.metrics, options.metrics_port, options.metrics_address, who="gateway"
            )
            port = stack.enter_context(pages)
            _say(log, f"metrics at http://{options.metrics_address}:{port}/metrics")
        server = Server(site, options.connections)
        async with server.listening(options.host, options.port, tls) as port:
            _say(log, f"listening at {options.host}:{port}")
            manager.ready()
            await _until(end, site, manager)
            manager.stopping()


def _see_bucket(remote: Remote) -> None:
    """See whether there is such a bucket; whatever else is wrong shows with each stream.

    Raises:
        MisconfiguredError: there is none.
    """
    from coldstream.adapters.settings import MisconfiguredError

    try:
        remote.store.get(f"{remote.prefix}gateway", 0, 1)
    except MisconfiguredError:
        raise
    except ColdstreamError:
        pass  # no such object, or no right to it


async def _until(end: asyncio.Event, site: Site, manager: Manager) -> None:
    """Tell the manager how it goes until the end."""
    while not end.is_set():
        manager.alive()
        metrics = site.metrics
        manager.status(f"{metrics.connections} clients, {metrics.subscriptions} subscriptions")
        with suppress(TimeoutError):
            async with asyncio.timeout(5.0):
                await end.wait()


def _site(
    options: GatewayOptions, remote: Remote, log: AgentLog, pool: Executor, stack: ExitStack
) -> Site:
    from concurrent.futures import ThreadPoolExecutor
    from importlib.metadata import version

    from coldstream.gateway.metrics import GatewayMetrics
    from coldstream.gateway.offsets import Offsets
    from coldstream.gateway.site import Site
    from coldstream.gateway.streams import Streams
    from coldstream.reader import MemoryBudget, ReaderSettings
    from coldstream.reader.pool import SharedPool

    broker = options.broker()
    budget = MemoryBudget(options.memory)
    metrics = GatewayMetrics(budget)
    gets = SharedPool(_GET_THREADS)
    stack.callback(gets.close)
    # Of their own: at the end all others may be waiting for S3.
    writers = ThreadPoolExecutor(_OFFSET_THREADS, thread_name_prefix="coldstream-offsets")
    stack.callback(writers.shutdown, wait=False, cancel_futures=True)

    def tell(stream: str, words: str) -> None:
        metrics.told += 1
        with suppress(OSError):  # stderr may be on a disk that is full
            log.warning("stream", f"{stream}: {words}", stream=stream)

    streams = Streams(
        store=remote.store,
        catalog=remote.catalog,
        prefix=remote.prefix,
        settings=ReaderSettings(range_size=_RANGE, in_flight=_IN_FLIGHT, pool=gets.view),
        budget=budget,
        pool=pool,
        broker=broker,
        data_dir=options.data_dir,
        tell=tell,
        policy=options.read_policy,
    )
    return Site(
        streams=streams,
        offsets=Offsets(broker, remote.offsets, writers),
        users=options.load_users(),
        metrics=metrics,
        pool=pool,
        say=lambda words: _say(log, words),
        version=version("coldstream"),
        host=options.advertised_host,
        port=options.advertised_port,
        subscriptions=options.subscriptions,
    )


def _reload(
    options: GatewayOptions,
    site: Site,
    tls: ssl.SSLContext | None,
    log: AgentLog,
    manager: Manager,
) -> None:
    """Read the files again; one that is broken changes nothing."""
    manager.reloading()
    if options.users is not None:
        with _telling(log, "the old users stay"):
            site.replace_users(options.load_user_file())
            _say(log, "the users file was read again")
    if tls is not None:
        with _telling(log, "the old certificate stays"):
            options.renew(tls)
            _say(log, "certificate and key were read again, for clients that come")
    manager.ready()


@contextmanager
def _telling(log: AgentLog, words: str) -> Iterator[None]:
    try:
        yield
    except InvalidInputError as exc:
        with suppress(OSError):
            log.error(InvalidInputError(f"{words}: {exc.reason}", key=exc.key), "reload")


def _say(log: AgentLog, words: str) -> None:
    with suppress(OSError):  # as above
        log.info("gateway", words)
