-- Age: the oldest message of each stream against its rule, and how far S3 is behind its producers.
SELECT
    vhost,
    queue,
    stream,
    retention_rule,
    max_age_seconds,
    age_seconds,
    CASE
        WHEN hold THEN 'held'
        WHEN max_age_seconds IS NULL THEN 'kept for ever'
        WHEN age_seconds > max_age_seconds + 86400 THEN 'overdue by more than a day'
        ELSE 'as the rule says'
    END AS verdict,
    lag_seconds,
    last_commit
FROM fleet_streams
WHERE
    snapshot = (SELECT max(snapshot) FROM fleet_streams)
    AND state = 'live'
    AND fragments > 0
ORDER BY age_seconds DESC, stream
