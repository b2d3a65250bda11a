"""Guards taken out of the product by edits of its source: name, rule, the edit.

Each is one line of the product that somebody might think superfluous. `mutants` says how soon the
simulator must notice.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import MappingProxyType

from coldstream.agent.disk import removed
from coldstream.agent.sending import slices as upload
from coldstream.agent.stream import step, strangers
from coldstream.manifest import ledger, root, tree
from coldstream.osiris import blank
from coldstream.plans import claim as claiming
from coldstream.plans import collect as garbage
from coldstream.plans import consolidate as consolidating
from coldstream.plans import cut, rebalance, reconcile, resolve, retention, splice
from coldstream.plans import truncate as truncating
from coldstream.reader import follow, locate
from coldstream.remote import publish, roots
from coldstream.usecases import (
    amend,
    claim,
    claim_function,
    classify,
    collect,
    consolidate,
    divergence,
    extend,
    handle_events,
    purge,
    references,
    repair_sources,
    truncate,
)
from coldstream_devkit.simulation.edits import Patch, edit

#: The rule in words, and the edit.
Guard = tuple[str, Callable[[], Patch]]

GUARDS: Mapping[str, Guard] = MappingProxyType(
    {
        "amend-replans": (
            "after a conflict a change is planned anew, from the root that is there",
            lambda: edit(
                amend.amend,
                "        change = plan(loaded)\n",
                "        change = plan(loaded) if not conflicts else change\n",
            ),
        ),
        "amend-reloads": (
            "after a conflict the stream is loaded again",
            lambda: edit(
                amend.amend,
                "        loaded = load(context, stream)\n        change = plan(loaded)\n",
                "        fresh = load(context, stream)\n"
                "        if conflicts: fresh = type(fresh)(fresh.item, loaded.root)\n"
                "        loaded = fresh\n"
                "        change = plan(loaded)\n",
            ),
        ),
        "floor": (
            "a fragment below the floor of its own epoch is not acceptable",
            lambda: edit(
                ledger.Ledger.accepts,
                "return floor is not None and floor <= first_offset and next_offset",
                "return floor is not None and next_offset",
            ),
        ),
        "trailer-floor": (
            "a trailer's floor is the ledger's",
            lambda: edit(resolve.check_fragment, "if trailer.floor != floor:", "if floor is None:"),
        ),
        "epochs-rise": (
            "chunk epochs never fall from one fragment to the next",
            lambda: edit(
                resolve.check_fragment,
                "if last_chunk is not None and trailer.first_chunk_epoch < last_chunk.epoch:",
                "if False:",
            ),
        ),
        "trailer-against-key": (
            "a fragment's trailer says what its key says",
            lambda: edit(
                resolve.check_fragment,
                "check_against_key(trailer, key, listed.size)",
                "pass",
            ),
        ),
        "bad-left-out": (
            "a fragment that fails is left out, and the run is resolved without it",
            lambda: edit(
                extend._Extending._verified,
                "            self._refuse(each, exc)\n            return run, each\n",
                "            self.refused[each.path] = exc\n            continue\n",
            ),
        ),
        "hole-to-fragment": (
            "a hole is taken only where a fragment begins exactly at its end",
            lambda: edit(
                resolve.Candidates.resolved,
                "next_offset = fragments[at].data_key.first_offset if at < len(fragments) "
                "else MAX_OFFSET",
                "next_offset = MAX_OFFSET if at == len(fragments) else "
                "max([h.data_key.next_offset for h in holes "
                "if h.data_key.first_offset == end], "
                "default=fragments[at].data_key.first_offset)",
            ),
        ),
        "hole-until": (
            "no hole reaches over a fragment",
            lambda: edit(
                resolve._ways,
                "if so_far is None or each.data_key.next_offset > until:",
                "if so_far is None:",
            ),
        ),
        "claim-takes-all": (
            "a claim appends all that is there before it sets its floor",
            lambda: edit(claim._Claiming._plan, "if extension.more:", "if False:"),
        ),
        "claim-floor": (
            "a claim's floor is the next offset of the root that it makes",
            lambda: edit(
                claiming.claim,
                "claimed(epoch, root.next_offset)",
                "claimed(epoch, root.first_offset)",
            ),
        ),
        "claim-high-floor": (
            "a claim's floor lies at the end, not above it",
            lambda: edit(
                claiming.claim,
                "claimed(epoch, root.next_offset)",
                "claimed(epoch, root.next_offset + 1)",
            ),
        ),
        "claim-once": (
            "an epoch that was passed over cannot claim",
            lambda: edit(
                claim.check_not_fenced,
                "if loaded.item.ledger.floor(epoch) is None or loaded.item.epoch > epoch:",
                "if loaded.item.ledger.floor(epoch) is None and loaded.item.epoch > epoch + 9:",
            ),
        ),
        "claim-last-chunk": (
            "no epoch claims over a chunk of a higher one",
            lambda: edit(
                claiming.claim,
                "if root.last_chunk is not None and root.last_chunk.epoch > epoch:",
                "if False:",
            ),
        ),
        "cut-record": (
            "what a claim cuts off is named in a quarantine record",
            lambda: edit(
                truncate._recorded,
                "if not listed and not has_data(context, stream, root, floor):",
                "if True:",
            ),
        ),
        "cut-record-kept": (
            "a quarantine record keeps the timelines of those before it",
            lambda: edit(
                truncate._recorded,
                "load_record(context, stream, root.quarantine_key)",
                'load_record(context, stream, "")',
            ),
        ),
        "cut-lists": (
            "uploads that no root names are named in the record",
            lambda: edit(
                truncate._recorded,
                "listed, complete = _listed(context, loaded, extension, epoch, floor, low)",
                "listed, complete = (), True",
            ),
        ),
        "beginning-kept": (
            "the good beginning of a fragment that is cut stays",
            lambda: edit(
                truncate.cut_off,
                "if rest.across is not None:",
                "if False:",
            ),
        ),
        "divergence-epoch": (
            "a local chunk of a higher epoch below the end is evidence",
            lambda: edit(
                divergence._Comparison._differs, "if last.epoch > tail.epoch:", "if False:"
            ),
        ),
        "divergence-tail": (
            "the manifest's last chunk is compared with the log's",
            lambda: edit(
                divergence._Comparison._differs,
                "return last != tail\n",
                "return False\n",
            ),
        ),
        "divergence-alone": (
            "a claim that shares nothing asks the other members first",
            lambda: edit(
                divergence._Comparison._cut,
                "if self._first > root.first_offset:",
                "if False:",
            ),
        ),
        "retention-last": (
            "the last fragment stays",
            lambda: edit(
                retention._Scan._reason, "if entry.next_offset > self._stays:", "if False:"
            ),
        ),
        "retention-bytes": (
            "retention counts what has gone already",
            lambda: edit(
                retention._Scan._level,
                "self._left -= size",
                "pass",
            ),
        ),
        "retention-group": (
            "a group goes as a whole only if it is too much without it",
            lambda: edit(
                retention._Scan._reason,
                "rest = self._left - size if entry.kind.level else self._left",
                "rest = self._left",
            ),
        ),
        "retention-age": (
            "a fragment goes when its youngest chunk is too old",
            lambda: edit(
                retention._Scan._reason,
                "entry.max_timestamp < self._oldest",
                "entry.min_timestamp < self._oldest",
            ),
        ),
        "retention-ledger": (
            "retention keeps every claim that can still let something in",
            lambda: edit(
                ledger.Ledger.above,
                "return Ledger(self.claims[number + 1 :])",
                "return Ledger(self.claims[-1:])",
            ),
        ),
        "retention-head": (
            "the root knows what is dead of its first group",
            lambda: edit(
                tree.head_of,
                "        if level is not entries:\n",
                "        if level is entries:\n",
            ),
        ),
        "rebalance-tail": (
            "the tail stays in the root",
            lambda: edit(
                rebalance.rebalance,
                "while end - begin >= 2 * branching:",
                "while end - begin >= branching:",
            ),
        ),
        "rebalance-oldest": (
            "the oldest entries are grouped",
            lambda: edit(
                rebalance.rebalance,
                "entries[begin : begin + len(taken)] = [node.entry()]",
                "entries[end - len(taken) : end] = [node.entry()]",
            ),
        ),
        "consolidate-there": (
            "a consolidated fragment replaces exactly the pieces that it was made of",
            lambda: edit(
                consolidate._still_there,
                "        if leaf != piece.entry:\n            return False\n",
                "        if leaf.first_offset != piece.entry.first_offset:\n"
                "            return False\n",
            ),
        ),
        "consolidate-first": (
            "nothing below the first offset is replaced",
            lambda: edit(
                consolidate._still_there,
                "if made.entry.first_offset < loaded.root.first_offset:",
                "if False:",
            ),
        ),
        "consolidate-crc": (
            "what is read to be joined is checked",
            lambda: edit(
                consolidate._ConsolidateStep._read,
                "if crc32(whole) != piece.trailer.data_crc:",
                "if False:",
            ),
        ),
        "consolidate-epoch": (
            "only fragments of one epoch and floor are joined",
            lambda: edit(
                consolidating.joins,
                "and (before.epoch, before.floor) == (after.epoch, after.floor)",
                "and True",
            ),
        ),
        "consolidate-haste": (
            "a commit that comes too late after its first object is given up",
            lambda: edit(publish.publish, "    if first_written:\n", "    if False:\n"),
        ),
        "splice-ends": (
            "a replacement ends where what it replaces ends",
            lambda: edit(
                splice._replaced,
                "if block[number - 1].next_offset != new.next_offset:",
                "if False:",
            ),
        ),
        "collect-state": (
            "a change of state makes all marks void",
            lambda: edit(
                collect._CollectStep._seen,
                "if header.state != self._state or header.first > last or header.last < first:",
                "if header.first > last or header.last < first:",
            ),
        ),
        "collect-young": (
            "a record proves nothing of objects that were young when it was written",
            lambda: edit(
                collect._CollectStep._seen,
                "proved.update(key for key in named if rows[key].modified_ms <= latest)",
                "proved.update(named)",
            ),
        ),
        "collect-quarantine": (
            "what a lost timeline names is kept",
            lambda: edit(
                classify.Classifier._data,
                "if kind is not ObjectKind.REFERENCED and "
                "(row.key in kept.listed or kept.names(key)):",
                "if False:",
            ),
        ),
        "collect-retired": (
            "a fragment that reaches over the first offset is not retired",
            lambda: edit(
                garbage.classify_data,
                "dead = key.next_offset <= root.first_offset",
                "dead = key.first_offset < root.first_offset",
            ),
        ),
        "collect-over-hole": (
            "data over a hole may be the only copy",
            lambda: edit(garbage.classify_data, "if not dead and over_hole(key):", "if False:"),
        ),
        "collect-ahead": (
            "what ends above the next offset may be appended yet",
            lambda: edit(
                garbage.classify_data,
                "ahead = key.next_offset > root.next_offset",
                "ahead = key.first_offset > root.next_offset",
            ),
        ),
        "collect-unclaimed": (
            "what an undo copies is kept until its claim has landed",
            lambda: edit(
                garbage.classify_data, "if may_undo(key.epoch, root.ledger.epoch):", "if False:"
            ),
        ),
        "repair-witness": (
            "a replica is asked only by a chunk that lies at or above the range",
            lambda: edit(
                repair_sources.Finder._witness,
                "if last is not None and last.chunk_id >= leaf.first_offset else None",
                "",
            ),
        ),
        "collect-root": (
            "a root above the item's version may be about to land",
            lambda: edit(
                garbage.classify_root,
                "return ObjectKind.OLD_ROOT if key.version <= version else ObjectKind.PENDING",
                "return ObjectKind.OLD_ROOT",
            ),
        ),
        "collect-group": (
            "a group of the tree is no garbage",
            lambda: edit(
                garbage.classify_group,
                "same = (entry.uid, entry.first_offset) == (key.uid, key.first_offset)",
                "same = entry.uid == key.uid and entry.kind.level < 2",
            ),
        ),
        "adopt-newest": (
            "the root of the highest version is adopted",
            lambda: edit(
                references.list_roots,
                "for page in context.pages(under, after=begin[:-1]):",
                "for page in list(context.pages(under, after=begin[:-1]))[:1]:",
            ),
        ),
        "adopt-evidence": (
            "of two claims that of which an upload tells is adopted",
            lambda: edit(reconcile.preferred, "contradicted(each[0], uploaded),", "False,"),
        ),
        "upload-header": (
            "a chunk's header is what its index record says, when it is read",
            lambda: edit(
                upload.check_chunks,
                "if fault is None:\n        return checked.crc or 0\n",
                "if fault is None or fault.kind is FindingKind.CHUNK_HEADER:\n"
                "        return __import__('zlib').crc32(data)\n",
            ),
        ),
        "upload-crc": (
            "a chunk's CRC is checked before it is uploaded",
            lambda: edit(
                upload.check_chunks,
                "if fault is None:\n        return checked.crc or 0\n",
                "if fault is None or fault.kind is FindingKind.CHUNK_CRC:\n"
                "        return __import__('zlib').crc32(data)\n",
            ),
        ),
        "upload-short": (
            "a segment that is shorter than its index says is not uploaded",
            lambda: edit(upload._read, "if done < len(into):", "if False:"),
        ),
        "cut-epoch": (
            "no chunk of a higher epoch is uploaded under a claim",
            lambda: edit(
                cut.cut,
                ' & (\n        segment.records["epoch"] <= np.uint64(epoch)\n    )',
                "",
            ),
        ),
        "declare-again": (
            "a hole is declared for an agent over the gap that it has seen, under its own claim",
            lambda: edit(
                claim_function._declare,
                "(gap.first_offset, gap.next_offset, gap.epoch) != asked",
                "False",
            ),
        ),
        "told-begin": (
            "a claim that a log is too short for is left to a longer one, whoever performs it",
            lambda: edit(
                claim_function._open,
                "alone=request.said.check_alone,",
                "alone=lambda begin, end: None,",
            ),
        ),
        "begun-meanwhile": (
            "a claim of a stream that another agent has begun is planned anew",
            lambda: edit(
                claim_function._open, "if 0 < item.epoch < request.epoch and", "if False and"
            ),
        ),
        "follower-reclaims": (
            "an agent claims again when a chunk of a higher epoch is there",
            lambda: edit(
                step._item_read,
                "if item.epoch > epoch:",
                "if False:",
            ),
        ),
        "held-committed": (
            "what was removed is uploaded only if it was committed, and not cut off before",
            lambda: edit(removed._committed, "if not counts:", "if False:"),
        ),
        "item-state": (
            "nothing is committed to a stream that is being deleted or rebuilt",
            lambda: edit(roots.load_item, "if item.state is not StreamState.LIVE:", "if False:"),
        ),
        "root-described": (
            "the root that was read is the one that the item describes",
            lambda: edit(roots.read_root, "(describes(item, root) and ", "("),
        ),
        "reader-cut": (
            "a reader is told when what it has read was cut off",
            lambda: edit(
                follow.RangeRead._changed,
                "elif max(cut, self._asked) < self.position:",
                "elif False:",
            ),
        ),
        "reader-first": (
            "a reader is told when retention has overtaken it",
            lambda: edit(
                follow.RangeRead._changed, "if self.position < stream.first_offset:", "if False:"
            ),
        ),
        "reader-missing": (
            "a reader whose object is gone looks at the manifest again",
            lambda: edit(
                follow.Followed.after_missing,
                "if again or not self._replace():",
                "if True:",
            ),
        ),
        "reader-root": (
            "a reader whose root is gone reads the item again",
            lambda: edit(
                roots.Snapshots._loaded, "if fresh.root_key == item.root_key:", "if True:"
            ),
        ),
        "reader-time": (
            "a read by time begins at the first chunk at or after it",
            lambda: edit(
                locate.chunk_reaching,
                "if index[number].timestamp >= timestamp:",
                "if index[number].timestamp > timestamp:",
            ),
        ),
        "tree-time": (
            "a look-up by time looks at the greatest timestamp of each entry",
            lambda: edit(
                tree._reaching,
                "if entry.max_timestamp < timestamp",
                "if entry.min_timestamp < timestamp",
            ),
        ),
        "batch-partial": (
            "a stream that could not be brought forward fails its messages",
            lambda: edit(
                handle_events.handle_messages,
                "failed.update((message_id, mention.located(error)) "
                "for message_id, mention in mentions)\n            continue",
                "continue",
            ),
        ),
        "append-last-chunk": (
            "a commit remembers the last chunk of what it appends",
            lambda: edit(
                root.Root.appended,
                "last_chunk=last_chunk,",
                "last_chunk=self.last_chunk or last_chunk,",
            ),
        ),
        "erase-epoch": (
            "only the message that was erased is blank, not another one at its offset",
            lambda: edit(
                blank.Erased.in_chunk,
                "found = self.by_epoch.get(header.epoch, OffsetSet())",
                "found = self.offsets",
            ),
        ),
        "erase-in-repair": (
            "a repair blanks what was erased, wherever it finds its bytes",
            lambda: edit(
                repair_sources.Finder._blank,
                "return [blank_chunk(each, self._erased) for each in chunks]",
                "return list(chunks)",
            ),
        ),
        "erase-is-no-forgery": (
            "an agent takes an erased message in the remote tier for no forgery",
            lambda: edit(
                strangers._Comparison._erased,
                "return differs_by_erasure_alone(local, chunk, erased)",
                "return False",
            ),
        ),
        "purge-hold": (
            "an erasure deletes nothing that somebody may be about to commit",
            lambda: edit(
                purge._PurgeStep._is_ripe,
                "return row.size == 0 or row.modified_ms < self._ripe_ms",
                "return True",
            ),
        ),
        "purge-garbage": (
            "an erasure deletes nothing but garbage",
            lambda: edit(
                purge._PurgeStep._delete,
                "kinds[row.key].garbage and self",
                "kinds[row.key] is not ObjectKind.REFERENCED and self",
            ),
        ),
        "agent-overtaken": (
            "an agent claims once a newer epoch has written below the end of the manifest",
            lambda: edit(step._work, "if not _is_overtaken(course, seen):", "if True:"),
        ),
        "truncate-last-chunk": (
            "a truncation remembers the last common chunk",
            lambda: edit(
                truncating.truncated, "last_chunk=cut.last_chunk,", "last_chunk=root.last_chunk,"
            ),
        ),
    }
)

#: Within so many seeds the simulator must notice; what is not here is left to other tests.
SEEDS: Mapping[str, int] = MappingProxyType(
    {
        "amend-replans": 2000,
        "amend-reloads": 2000,
        "trailer-against-key": 2000,
        "claim-floor": 2000,
        "cut-record": 2000,
        "beginning-kept": 2000,
        "retention-last": 2000,
        "retention-bytes": 2000,
        "retention-group": 2000,
        "retention-head": 2000,
        "rebalance-oldest": 2000,
        "consolidate-epoch": 2000,
        "collect-quarantine": 2000,
        "collect-unclaimed": 2000,
        "cut-epoch": 2000,
        "reader-time": 2000,
        "tree-time": 2000,
        "append-last-chunk": 2000,
        "told-begin": 2000,
        "agent-overtaken": 2000,
        "bad-left-out": 5000,
        "erase-epoch": 20_000,
        "purge-hold": 20_000,
        "purge-garbage": 20_000,
    }
)
