"""The end of a connection, whether the other end takes it or not."""

from __future__ import annotations

import asyncio


async def hang_up(writer: asyncio.StreamWriter, seconds: float = 1.0) -> None:
    """Close a socket: what waits for it is sent if it is taken in time, and dropped if not."""
    closed = False
    writer.close()
    try:
        async with asyncio.timeout(seconds):
            await writer.wait_closed()
        closed = True
    except TimeoutError:
        pass  # it takes nothing any more
    except OSError:
        closed = True
    finally:
        if not closed:  # abort() of one that is closed raises
            writer.transport.abort()
