-- Orphans: objects without a reference that are older than a day, and that no claim has cut off. Needs a run of fleet with --objects.
SELECT
    object.stream,
    object.kind,
    count(*) AS objects,
    sum(object.bytes) AS bytes,
    min(object.modified) AS oldest,
    max(object.modified) AS newest,
    max(CASE WHEN stream.stream IS NULL THEN 1 ELSE 0 END) AS stream_is_unknown
FROM fleet_objects AS object
LEFT JOIN fleet_streams AS stream
    ON stream.stream = object.stream AND stream.snapshot = object.snapshot
WHERE
    object.snapshot = (SELECT max(snapshot) FROM fleet_objects)
    AND NOT object.referenced
    AND NOT object.ahead
    AND NOT coalesce(object.quarantined, FALSE)
    AND object.kind IN ('fragment', 'hole', 'group')
    AND object.modified < date_parse(substr(object.snapshot, 1, 15), '%Y%m%dT%H%i%s') - INTERVAL '1' DAY
GROUP BY object.stream, object.kind
ORDER BY bytes DESC, object.stream
