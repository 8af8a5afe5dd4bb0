-- Sets a new time to live on a token's claims.
--
-- KEYS, ARGV[1..2]  see folder_common.lua
-- ARGV[3]  ttl in milliseconds from now
--
-- Result: 1 if the token had its claims, else 0. They expire no sooner than before, see extend.lua.

local till = redis.call('ZSCORE', KEYS[2], token)
if not till or tonumber(till) <= now then
	return 0
end
if tonumber(till) >= now + ARGV[3] then
	return 1
end
redis.call('ZREM', KEYS[2], token) -- a server without free memory adds nothing before it has removed something
redis.call('ZADD', KEYS[2], now + ARGV[3], token)
keep(cmsgpack.unpack(redis.call('HGET', KEYS[3], token)))
return 1
