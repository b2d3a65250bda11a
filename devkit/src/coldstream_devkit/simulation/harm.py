"""What may become of objects in the bucket without us: rot, cuts, losses, keys of others."""

from __future__ import annotations

from coldstream.names import metadata_prefix
from coldstream_devkit.odd_keys import odd_keys
from coldstream_devkit.simulation.cluster import ChunkId
from coldstream_devkit.simulation.scene import PREFIX, Scene, Stream


def rots(scene: Scene) -> bool:
    """Bits of one chunk in one fragment change; trailer and index stay whole."""
    found = _fragment(scene)
    if found is None:
        return False
    stream, key = found
    contents = stream.oracle.contents
    chunks = contents.chunks[key]
    identity = scene.choices.one_of(chunks)
    at = 8 + sum(len(stream.cluster.written[each].data) for each in _before(chunks, identity))
    _flip(scene, key, at + len(stream.cluster.written[identity].data) - 1)
    contents.harm(key, scene.scheduler.steps, frozenset({identity}))
    return _told(scene, "rotten", key)


def trailer_rots(scene: Scene) -> bool:
    """Bits in the trailer of a fragment change; its chunks stay whole."""
    found = _fragment(scene)
    if found is None:
        return False
    stream, key = found
    _flip(scene, key, len(scene.objects.objects[key]) - 60)
    stream.oracle.contents.harm(key, scene.scheduler.steps)
    return _told(scene, "rotten trailer", key)


def is_cut(scene: Scene) -> bool:
    """A fragment ends in its middle."""
    found = _fragment(scene)
    if found is None:
        return False
    stream, key = found
    data = scene.objects.objects[key]
    scene.objects.objects[key] = data[: len(data) // 2]
    stream.oracle.contents.harm(key, scene.scheduler.steps)
    return _told(scene, "cut object", key)


def vanishes(scene: Scene) -> bool:
    """A fragment is gone: a lifecycle rule, or a person."""
    found = _fragment(scene)
    if found is None:
        return False
    stream, key = found
    scene.objects.delete([key])
    stream.oracle.contents.harm(key, scene.scheduler.steps)
    return _told(scene, "vanished object", key)


def group_is_lost(scene: Scene) -> bool:
    """A group of the current tree is gone, or damaged."""
    stream = scene.pick()
    current = stream.oracle.current
    if current is None or not current.manifest.nodes:
        return False
    key = scene.choices.one_of(current.manifest.nodes)
    return _lose(scene, stream, key, "lost group")


def root_is_lost(scene: Scene) -> bool:
    """The current root is gone, or damaged."""
    stream = scene.pick()
    current = stream.oracle.current
    if current is None:
        return False
    return _lose(scene, stream, current.item.root_key, "lost root")


def metadata_is_lost(scene: Scene) -> bool:
    """Everything below metadata/ is gone; perhaps the table, too."""
    stream = scene.pick()
    under = metadata_prefix(PREFIX, stream.name)
    keys = [key for key in scene.objects.objects if key.startswith(under)]
    if not keys:
        return False
    for key in keys:
        stream.oracle.contents.harm(key, scene.scheduler.steps)
    scene.objects.delete(keys)
    if scene.choices.below(2):
        scene.catalog.inner.items.pop(stream.name, None)
        scene.buckets["lost item"] += 1
    return _told(scene, "lost metadata", under)


def late_copy(scene: Scene) -> bool:
    """A retry of an upload that landed long ago: the same bytes under another uid."""
    found = _fragment(scene)
    if found is None:
        return False
    stream, key = found
    head, _, tail = key.rpartition(".fragment")[0].rpartition(".")
    del tail
    data = scene.objects.objects[key]
    path = f"{head}.{scene.new_uid():016x}.fragment"
    if not stream.oracle.contents.whole(key):
        return False
    scene.spawn("late copy", lambda: scene.store.put(path, data, write_id="late"))
    return True


def odd_key(scene: Scene) -> bool:
    """Another principal PUTs objects whose keys are none of ours."""
    stream, count = scene.pick(), scene.choices.one_of((1, 4, 12))
    for key in odd_keys(scene.choices.below(100_000), PREFIX, stream.name, count):
        if key not in scene.objects.objects:
            scene.objects.put(key, b"x", write_id="odd")
            scene.scheduler.say(f"odd key: {key!r}")
    return True


def _fragment(scene: Scene) -> tuple[Stream, str] | None:
    """A fragment that nothing has happened to yet; of the current manifest, more often than not."""
    stream = scene.pick()
    contents, current = stream.oracle.contents, stream.oracle.current
    live = set() if current is None else current.keys
    keys = [
        key
        for key in scene.objects.objects
        if contents.chunks.get(key)
        and key not in contents.harmed
        and (key in live or key not in scene.replacing or not scene.replacing[key].fiber)
    ]
    if scene.choices.below(4) and (of_manifest := [key for key in keys if key in live]):
        keys = of_manifest
    return (stream, scene.choices.one_of(keys)) if keys else None


def _before(chunks: tuple[ChunkId, ...], identity: ChunkId) -> tuple[ChunkId, ...]:
    return chunks[: chunks.index(identity)]


def _flip(scene: Scene, key: str, at: int) -> None:
    data = bytearray(scene.objects.objects[key])
    data[at] ^= 0x40
    scene.objects.objects[key] = bytes(data)


def _lose(scene: Scene, stream: Stream, key: str, what: str) -> bool:
    if key not in scene.objects.objects or key in stream.oracle.contents.harmed:
        return False
    stream.oracle.contents.harm(key, scene.scheduler.steps)
    if scene.choices.below(2):
        _flip(scene, key, len(scene.objects.objects[key]) // 2)
    else:
        scene.objects.delete([key])
    return _told(scene, what, key)


def _told(scene: Scene, what: str, key: str) -> bool:
    scene.buckets[what] += 1
    scene.scheduler.say(f"{what}: {key!r}")
    return True
