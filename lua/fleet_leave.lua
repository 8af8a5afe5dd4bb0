-- Takes a gateway out of the list of those that are registered, if it has applied every purge.
--
-- KEYS[1]  log of purges: a sorted set of "fence path" by fence
-- KEYS[2]  base of the log: the highest fence that is no longer in it
-- KEYS[3]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[4]  fence of the last purge that each of them has applied, by name
-- KEYS[5]  record of each of them by name
-- ARGV[1]  name of the gateway
-- ARGV[2]  fence of the last purge that it has applied, "" = it need not apply any
-- ARGV[3]  channel to tell the others on
--
-- Result: 1, or 0 if it has purges to apply before.

if ARGV[2] ~= '' then
	local newest = tonumber(redis.call('ZREVRANGE', KEYS[1], 0, 0, 'WITHSCORES')[2] or 0)
	local base = tonumber(redis.call('GET', KEYS[2]) or 0)
	if math.max(newest, base) > tonumber(ARGV[2]) then
		return 0
	end
end
redis.call('ZREM', KEYS[3], ARGV[1])
redis.call('HDEL', KEYS[4], ARGV[1])
redis.call('HDEL', KEYS[5], ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[1])
return 1
