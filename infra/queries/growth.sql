-- Growth: bytes, offsets and fragments of each stream now, and since the snapshot a week before.
WITH latest AS (
    SELECT max(snapshot) AS snapshot FROM fleet_streams
),
before AS (
    SELECT max(earlier.snapshot) AS snapshot
    FROM fleet_streams AS earlier
    CROSS JOIN latest
    WHERE earlier.snapshot <= date_format(
        date_parse(substr(latest.snapshot, 1, 15), '%Y%m%dT%H%i%s') - INTERVAL '7' DAY, '%Y%m%dT%H%i%sZ'
    )
)
SELECT
    this.vhost,
    this.queue,
    this.stream,
    this.bytes,
    this.bytes - that.bytes AS bytes_in_a_week,
    this.next_offset - that.next_offset AS messages_in_a_week,
    this.fragments - that.fragments AS fragments_in_a_week
FROM fleet_streams AS this
JOIN latest ON this.snapshot = latest.snapshot
LEFT JOIN before ON TRUE
LEFT JOIN fleet_streams AS that
    ON that.stream = this.stream AND that.snapshot = before.snapshot
ORDER BY bytes_in_a_week DESC NULLS LAST, this.bytes DESC, this.stream
