-- Purges a file, a folder or all: what was fetched under leases taken before is neither published nor read from now on.
--
-- KEYS[1]  fence counter, which leases are counted by too
-- KEYS[2]  fence of the last purge of this path
-- KEYS[3]  log of purges: a sorted set of "fence path" by fence
-- KEYS[4]  base of the log: the highest fence that is no longer in it
-- KEYS[5]  gateways by the time, in milliseconds, at which they were last seen
-- ARGV[1]  path: "" = all, with a slash at its end = a folder
-- ARGV[2]  how long, in milliseconds, the fence of the path is kept: longer than any entry and any lease
-- ARGV[3]  how many purges the log keeps
-- ARGV[4]  how long, in milliseconds, it keeps them
-- ARGV[5]  how long, in milliseconds, a gateway counts after it was seen
-- ARGV[6]  channel to tell it on
-- ARGV[7]  how long, in milliseconds, the log as a whole is kept when nothing happens
--
-- Result: {fence, names of the gateways that have to obey}.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local fence = redis.call('INCR', KEYS[1])
local clock = time[1] * 1000000 + time[2]
if fence < clock then
	fence = clock
	redis.call('SET', KEYS[1], string.format('%.0f', fence))
end
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[2], text, 'PX', ARGV[2])
redis.call('ZADD', KEYS[3], text, text .. ' ' .. ARGV[1])

-- Fences follow the clock in microseconds, so they tell the age as well.
local function trim(command, from, to)
	local last = redis.call(command, KEYS[3], from, to)
	if #last > 0 then
		local base = string.match(last[#last], '^%d+')
		redis.call('ZREMRANGEBYSCORE', KEYS[3], '-inf', base)
		redis.call('SET', KEYS[4], base, 'PX', ARGV[7])
	end
end
trim('ZRANGE', 0, -1 - ARGV[3])
trim('ZRANGEBYSCORE', '-inf', string.format('%.0f', fence - ARGV[4] * 1000))
redis.call('PEXPIRE', KEYS[3], ARGV[7])

redis.call('PUBLISH', ARGV[6], text)
local names = redis.call('ZRANGEBYSCORE', KEYS[5], string.format('%.0f', now - ARGV[5]), '+inf')
table.insert(names, 1, text)
return names
