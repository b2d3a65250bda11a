-- Skew: streams whose fragments are far from even, which consolidation should mend.
SELECT
    stream,
    count(*) AS fragments,
    sum(bytes) AS bytes,
    min(bytes) AS smallest,
    approx_percentile(bytes, 0.5) AS median,
    max(bytes) AS largest,
    count(CASE WHEN bytes < 16777216 THEN 1 END) AS below_16_mib,
    round(100.0 * count(CASE WHEN bytes < 16777216 THEN 1 END) / count(*), 1) AS percent_small
FROM fleet_fragments
WHERE
    snapshot = (SELECT max(snapshot) FROM fleet_streams)
    AND kind = 'fragment'
GROUP BY stream
ORDER BY below_16_mib DESC, stream
