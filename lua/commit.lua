-- Writes a value for the holder of a lock, unless a later holder has written already.
--
-- KEYS[1]  the value: a hash with the fields "fence" and "value"
-- ARGV[1]  fence of the lock
-- ARGV[2]  value
-- ARGV[3]  ttl of the value in milliseconds
--
-- Result: 1 if written, 0 if the value has a higher fence. Fences are below 2^53, up to which a Lua
-- number is exact.

local seen = redis.call('HGET', KEYS[1], 'fence')
if seen and tonumber(seen) > tonumber(ARGV[1]) then
	return 0
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[2])
redis.call('PEXPIRE', KEYS[1], ARGV[3])
return 1
