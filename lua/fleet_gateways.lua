-- Lists the registered gateways.
--
-- KEYS[1]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[2]  fence of the last purge that each of them has applied, by name
-- KEYS[3]  record of each of them by name, and "#began", see fleet_sync.lua
-- ARGV[1]  number of gateways to list: the last ones seen
-- ARGV[2]  longest name in bytes: longer ones were written by another program and are left out
--
-- Result: "#began" or "", and for each gateway its name, the milliseconds since it was seen, the
-- fence, and the record.
-- Names that KEYS[2] does not have were not written by a gateway and are left out.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local list = {string.sub(redis.call('HGET', KEYS[3], '#began') or '', 1, 17)}
local seen = redis.call('ZREVRANGE', KEYS[1], 0, ARGV[1] - 1, 'WITHSCORES')
for i = 1, #seen, 2 do
	local applied = string.sub(redis.call('HGET', KEYS[2], seen[i]) or '', 1, 17)
	if applied ~= '' and #seen[i] <= tonumber(ARGV[2]) then
		list[#list + 1] = seen[i]
		list[#list + 1] = string.format('%.0f', math.max(0, math.min(now - seen[i + 1], 1e12)))
		list[#list + 1] = applied
		list[#list + 1] = string.sub(redis.call('HGET', KEYS[3], seen[i]) or '', 1, 512)
	end
end
return list
