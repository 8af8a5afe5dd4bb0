-- Takes a gateway out of the list of those that are registered, unless another process has
-- its name since.
--
-- KEYS[1]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[2]  fence of the last purge that each of them has applied, by name
-- KEYS[3]  record of each of them by name
-- ARGV[1]  name of the gateway
-- ARGV[2]  time at which it was last seen, as fleet_sync.lua has told it; "" = whatever is there
-- ARGV[3]  channel to tell the others on
--
-- Result: 1, or 0 if it was seen at another time.

if ARGV[2] ~= '' and tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1])) ~= tonumber(ARGV[2]) then
	return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[1])
return 1
