-- Writes an entry on behalf of the holder of a lease, unless the lease has gone or the file was purged since it was taken.
--
-- KEYS[1]    where the entry is kept: a hash of "fence", "value" and "by"
-- KEYS[2]    the lease's lock
-- KEYS[3..]  fences of the last purges of all files, of each folder above the file, and of the file
-- ARGV[1]    fence of the lease
-- ARGV[2]    token of the lease
-- ARGV[3]    value
-- ARGV[4]    who writes
-- ARGV[5]    ttl of the entry in milliseconds
--
-- Result: 1 when written, 0 when the lease is not held any more, or a later holder or a purge was there. Fences are below 2^53,
-- which a Lua number holds exactly.

local fence = tonumber(ARGV[1])
if redis.call('GET', KEYS[2]) ~= ARGV[2] then
	return 0
end
if tonumber(redis.call('HGET', KEYS[1], 'fence') or 0) > fence then
	return 0
end
for _, purged in ipairs(redis.call('MGET', unpack(KEYS, 3))) do
	if purged and tonumber(purged) > fence then
		return 0
	end
end
redis.call('HSET', KEYS[1], 'fence', ARGV[1], 'value', ARGV[3], 'by', ARGV[4])
redis.call('PEXPIRE', KEYS[1], ARGV[5])
return 1
