-- Deletes an entry if it is still the one that somebody wrote.
--
-- KEYS[1]  the entry
-- ARGV[1]  who wrote it
--
-- Result: 1 when it was deleted, else 0.

if redis.call('HGET', KEYS[1], 'by') ~= ARGV[1] then
	return 0
end
return redis.call('DEL', KEYS[1])
