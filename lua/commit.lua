-- Writes a value on behalf of the holder of a lock, unless a later holder has written already.
--
-- KEYS[1]  where the value is kept: a hash of "fence" and "value"
-- ARGV[1]  fence of the lock
-- ARGV[2]  value
-- ARGV[3]  ttl of the value in milliseconds
--
-- Result: 1 when written, 0 when a higher fence has been seen. Fences are below 2^53, which a Lua number holds exactly.

local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and tonumber(seen) > tonumber(ARGV[1]) then
	return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
