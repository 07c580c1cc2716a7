-- note: that something is left out
INSERT INTO duckicelake_left_out (follower, what, reason) VALUES (%(follower)s, %(what)s, %(reason)s);

-- newest: the last thing that a follower has left out, and how often it has left out one
SELECT what, reason, count(*) OVER () FROM duckicelake_left_out WHERE follower = %(follower)s ORDER BY at DESC LIMIT 1;

-- forget: all that has been left out
DELETE FROM duckicelake_left_out RETURNING follower, what, reason;
