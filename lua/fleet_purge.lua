-- Writes the purge of a file, a folder or all files into the log.
--
-- KEYS[1]  fence counter, also used for leases
-- KEYS[2]  log of purges: a sorted set of "fence path" by fence
-- KEYS[3]  base of the log: the highest fence that is no longer in it
-- KEYS[4]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[5]  record of each of them by name, and "#began", see fleet_sync.lua
-- KEYS[6]  fence of the last purge that each of them has applied, by name: names that it does not
--          have were not written by a gateway and are left out
-- ARGV[1]  path: "" = all, with a slash at its end = a folder
-- ARGV[2]  largest number of purges in the log
-- ARGV[3]  largest age of a purge in the log, in milliseconds
-- ARGV[4]  time in milliseconds after it was seen for which a gateway has to apply the purge
-- ARGV[5]  channel on which the purge is published
-- ARGV[6]  milliseconds after the last purge or heartbeat at which the log and its base expire
-- ARGV[7]  largest number of gateways in the result
-- ARGV[8]  longest name of a gateway in bytes: longer ones were written by another program
--
-- Result: {fence, "#began" or "", names of the gateways that have to apply it}.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local clock = time[1] * 1000000 + time[2]
local newest = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
local base = tonumber(redis.call('GET', KEYS[3]) or 0)
-- Higher than each fence that a gateway has applied, even if the counter was lost or another
-- program wrote a purge.
local fence = math.max(redis.call('INCR', KEYS[1]), clock, newest + 1, base + 1)
local text = string.format('%.0f', fence)
redis.call('SET', KEYS[1], text)
redis.call('ZADD', KEYS[2], text, text .. ' ' .. ARGV[1])

-- Removes a range of the oldest purges, and raises the base. Fences follow the clock in
-- microseconds, so they also show the age of a purge.
local function trim(command, from, to)
	local last = redis.call(command, KEYS[2], from, to, 'WITHSCORES')
	if #last > 0 then
		local base = string.format('%.0f', math.max(0, last[#last]))
		redis.call('ZREMRANGEBYSCORE', KEYS[2], '-inf', base)
		redis.call('SET', KEYS[3], base, 'PX', ARGV[6])
	end
end
trim('ZRANGE', 0, -1 - ARGV[2])
trim('ZRANGEBYSCORE', '-inf', string.format('%.0f', fence - ARGV[3] * 1000))
redis.call('PEXPIRE', KEYS[2], ARGV[6])

redis.call('PUBLISH', ARGV[5], text)
local reply = {text, string.sub(redis.call('HGET', KEYS[5], '#began') or '', 1, 17)}
local registered = string.format('%.0f', now - ARGV[4])
for _, name in ipairs(redis.call('ZREVRANGEBYSCORE', KEYS[4], '+inf', registered, 'LIMIT', 0, ARGV[7])) do
	if #name <= tonumber(ARGV[8]) and redis.call('HEXISTS', KEYS[6], name) == 1 then
		reply[#reply + 1] = name
	end
end
return reply
