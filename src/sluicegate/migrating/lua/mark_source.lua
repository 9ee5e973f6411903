-- Give a stream of another library an id, by which its new place knows what was moved.
-- Guarantee: a source keeps its first id as long as it is remembered.
-- KEYS:
--   1 mark
-- ARGV:
--   1 nonce                the id, if there is none yet
--   2 keep_ms              how long it is remembered from now on
-- Returns: the id
-- Repeat: answers with the same id.

redis.call('SET', mark, nonce, 'NX', 'PX', keep_ms)
redis.call('PEXPIRE', mark, keep_ms)
return redis.call('GET', mark)
