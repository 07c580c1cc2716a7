-- register: begin with the events to come, unless the transport is known
INSERT INTO duckicelake_delivery (transport, event_id)
SELECT %(transport)s, coalesce(max(id), 0) FROM duckicelake_lineage_event
ON CONFLICT DO NOTHING;

-- take_turn: be the one who delivers, for as long as the session lasts, unless another is
SELECT pg_try_advisory_lock(%(key)s # {short_schema_key}, hashtext(%(transport)s));

-- look: the newest event, up to which none waits any more, and whether dead letters are to be tried again
SELECT (SELECT coalesce(max(id), 0) FROM duckicelake_lineage_event),
       (SELECT event_id FROM duckicelake_delivery WHERE transport = %(transport)s),
       EXISTS (SELECT FROM duckicelake_dead_letter WHERE transport = %(transport)s AND again);

-- events: the next ones of our own, in order
SELECT id, body::text FROM duckicelake_lineage_event
WHERE id > %(after)s AND id <= %(upto)s AND origin <> 'received'
ORDER BY id LIMIT %(limit)s;

-- surplus: the newest of our own events before the last so many, if there are more
SELECT id FROM duckicelake_lineage_event
WHERE id > %(after)s AND id <= %(upto)s AND origin <> 'received'
ORDER BY id DESC OFFSET %(most)s LIMIT 1;

-- count: our own events between two
SELECT count(*) FROM duckicelake_lineage_event WHERE id > %(after)s AND id <= %(upto)s AND origin <> 'received';

-- move: go on to a later event, unless another process has moved the position meanwhile
UPDATE duckicelake_delivery
SET event_id = %(upto)s, delivered = delivered + %(delivered)s, dropped = dropped + %(dropped)s, moved = clock_timestamp()
WHERE transport = %(transport)s AND event_id = %(after)s;

-- bury: keep what the receiver refused; a letter that was there has been tried again
INSERT INTO duckicelake_dead_letter (transport, event_id, status, reason, attempts, body)
VALUES (%(transport)s, %(event_id)s, %(status)s, %(reason)s, %(attempts)s, %(body)s)
ON CONFLICT (transport, event_id) DO UPDATE
SET at = clock_timestamp(), status = excluded.status, reason = excluded.reason, again = false,
    attempts = duckicelake_dead_letter.attempts + excluded.attempts;

-- shorten: forget the oldest letters of a transport that has more than so many
DELETE FROM duckicelake_dead_letter
WHERE transport = %(transport)s
  AND event_id <= (SELECT event_id FROM duckicelake_dead_letter WHERE transport = %(transport)s
                   ORDER BY event_id DESC OFFSET %(most)s LIMIT 1);

-- letters: those to be tried again, oldest first
SELECT event_id, body::text FROM duckicelake_dead_letter
WHERE transport = %(transport)s AND again ORDER BY event_id LIMIT %(limit)s;

-- unbury: forget a letter that has arrived
DELETE FROM duckicelake_dead_letter WHERE transport = %(transport)s AND event_id = %(event_id)s;

-- retry: have dead letters tried again, of all transports or one
UPDATE duckicelake_dead_letter SET again = true
WHERE NOT again AND (%(transport)s::text IS NULL OR transport = %(transport)s);

-- replay: have a transport begin with the oldest event once more
UPDATE duckicelake_delivery SET event_id = 0, moved = clock_timestamp() WHERE transport = %(transport)s;

-- wake: have whoever delivers look, when the transaction is committed
SELECT pg_notify('duckicelake_lineage', '');

-- forget: a transport that isn't used any more, with its dead letters
WITH letters AS (DELETE FROM duckicelake_dead_letter WHERE transport = %(transport)s)
DELETE FROM duckicelake_delivery WHERE transport = %(transport)s;

-- standings: how far each transport is
SELECT d.transport, d.event_id, d.delivered, d.dropped, d.moved,
       (SELECT count(*) FROM duckicelake_lineage_event WHERE id > d.event_id AND origin <> 'received'),
       (SELECT min(at) FROM duckicelake_lineage_event WHERE id > d.event_id AND origin <> 'received'),
       (SELECT count(*) FROM duckicelake_dead_letter WHERE transport = d.transport AND NOT again),
       (SELECT count(*) FROM duckicelake_dead_letter WHERE transport = d.transport AND again)
FROM duckicelake_delivery AS d ORDER BY d.transport;

-- dead: the newest dead letters, of all transports or one
SELECT transport, event_id, at, status, reason, attempts, again, body FROM duckicelake_dead_letter
WHERE %(transport)s::text IS NULL OR transport = %(transport)s
ORDER BY at DESC, event_id DESC LIMIT %(limit)s;
