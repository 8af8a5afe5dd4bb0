-- Removes a gateway from the list of registered gateways, unless another process has its name
-- meanwhile.
--
-- KEYS[1]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[2]  fence of the last purge that each of them has applied, by name
-- KEYS[3]  record of each of them by name
-- ARGV[1]  name of the gateway
-- ARGV[2]  time at which it was last seen, from the reply of fleet_sync.lua; "" = any time
-- ARGV[3]  channel on which the other gateways are notified
--
-- Result: 1, or 0 and no change if it was seen at another time.

if ARGV[2] ~= '' and tonumber(redis.call('ZSCORE', KEYS[1], ARGV[1])) ~= tonumber(ARGV[2]) then
	return 0
end
redis.call('ZREM', KEYS[1], ARGV[1])
redis.call('HDEL', KEYS[2], ARGV[1])
redis.call('HDEL', KEYS[3], ARGV[1])
redis.call('PUBLISH', ARGV[3], ARGV[1])
return 1
