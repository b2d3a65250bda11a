-- Holes: ranges that both tiers have lost, with the time around each.
SELECT
    hole.stream,
    stream.vhost,
    stream.queue,
    hole.first_offset,
    hole.next_offset,
    hole.next_offset - hole.first_offset AS lost_offsets,
    hole.min_time AS not_before,
    hole.epoch
FROM fleet_fragments AS hole
JOIN fleet_streams AS stream
    ON stream.stream = hole.stream AND stream.snapshot = hole.snapshot
WHERE
    hole.snapshot = (SELECT max(snapshot) FROM fleet_streams)
    AND hole.kind = 'hole'
ORDER BY hole.stream, hole.first_offset
