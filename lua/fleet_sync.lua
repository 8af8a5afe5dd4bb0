-- Says that a gateway lives and which purges it has obeyed, and tells it the next ones.
--
-- KEYS[1]  fence counter
-- KEYS[2]  log of purges: a sorted set of "fence path" by fence
-- KEYS[3]  base of the log: the highest fence that is no longer in it
-- KEYS[4]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[5]  fence of the last purge that each of them has obeyed, by name
-- KEYS[6]  fence of the last purge of all files
-- ARGV[1]  name of the gateway
-- ARGV[2]  fence of the last purge that it has obeyed, 0 = none
-- ARGV[3]  how many purges to tell
-- ARGV[4]  how long, in milliseconds, all this is kept
-- ARGV[5]  how long, in milliseconds, a gateway that is not seen is remembered
-- ARGV[6]  channel to tell purges on
-- ARGV[7]  how long, in milliseconds, the fence of a purge is kept
--
-- Result: {0, "fence path", ...}, the purges after the last that it has obeyed; or {1, fence} when the log does not reach back
-- that far: it has to drop everything, and then has obeyed up to the fence.
--
-- When a gateway has obeyed a purge that the log knows nothing of, the server has lost data. If nothing was purged since, the
-- purge becomes the base, so that those who missed it drop everything. Else nobody can tell who missed what, and all is purged.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local last = tonumber(ARGV[2])
redis.call('ZADD', KEYS[4], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[5], ARGV[1], ARGV[2])
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now - ARGV[5]), 'LIMIT', 0, 16)) do
	redis.call('ZREM', KEYS[4], gone)
	redis.call('HDEL', KEYS[5], gone)
end

local base = tonumber(redis.call('GET', KEYS[3]) or 0)
local newest = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
if last > math.max(base, newest) then
	redis.call('SET', KEYS[3], ARGV[2])
elseif last > base and redis.call('ZCOUNT', KEYS[2], ARGV[2], ARGV[2]) == 0 then
	local clock = time[1] * 1000000 + time[2]
	local fence = math.max(redis.call('INCR', KEYS[1]), clock)
	local text = string.format('%.0f', fence)
	redis.call('SET', KEYS[1], text)
	redis.call('SET', KEYS[6], text, 'PX', ARGV[7])
	redis.call('ZADD', KEYS[2], text, text .. ' ')
	redis.call('PUBLISH', ARGV[6], text)
end
for i = 2, 5 do
	redis.call('PEXPIRE', KEYS[i], ARGV[4])
end

if last < base then
	return {1, string.format('%.0f', math.max(base, newest))}
end
local purges = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. ARGV[2], '+inf', 'LIMIT', 0, ARGV[3])
table.insert(purges, 1, 0)
return purges
