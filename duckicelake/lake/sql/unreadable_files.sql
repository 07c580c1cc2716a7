-- note: that data files can't be read
INSERT INTO duckicelake_unreadable_file AS u (data_file_id, table_id, noted)
SELECT data_file_id, table_id, clock_timestamp() FROM ducklake_data_file
WHERE data_file_id = ANY (%(data_file_ids)s) AND end_snapshot IS NULL
ORDER BY data_file_id
ON CONFLICT (data_file_id) DO UPDATE SET noted = EXCLUDED.noted;

-- forget: notes that hold no more
DELETE FROM duckicelake_unreadable_file WHERE noted < clock_timestamp() - %(days)s * interval '1 day';

-- unreadable: live files of some tables that were noted within some days, by table
SELECT u.table_id, array_agg(u.data_file_id ORDER BY u.data_file_id)
FROM duckicelake_unreadable_file u JOIN ducklake_data_file f USING (data_file_id)
WHERE u.table_id = ANY (%(table_ids)s) AND f.end_snapshot IS NULL
  AND u.noted > clock_timestamp() - %(days)s * interval '1 day'
GROUP BY u.table_id;
