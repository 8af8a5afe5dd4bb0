-- Records the heartbeat and the applied fence of a gateway. Returns the next purges and the live
-- gateways.
--
-- KEYS[1]  fence counter
-- KEYS[2]  log of purges: a sorted set of "fence path" by fence
-- KEYS[3]  base of the log: the highest fence that is no longer in it
-- KEYS[4]  gateways by the time, in milliseconds, at which they were last seen
-- KEYS[5]  fence of the last purge that each of them has applied, by name
-- KEYS[6]  record of each of them by name; "#joins": time of the last change in microseconds;
--          "#began": time of the first heartbeat: another one shows that the server has lost the keys
-- ARGV[1]  name of the gateway
-- ARGV[2]  fence of the last purge that it has applied, 0 = none
-- ARGV[3]  largest number of purges in the result
-- ARGV[4]  milliseconds after the last heartbeat of any gateway at which KEYS[2..6] expire
-- ARGV[5]  milliseconds after which a gateway that is not seen is removed from KEYS[4..6]
-- ARGV[6]  channel on which purges, and new or changed gateways, are published
-- ARGV[7]  record of the gateway, "" = it has no peers
-- ARGV[8]  time in milliseconds after it was seen for which a gateway counts as living
-- ARGV[9]  revision of the list of gateways that this gateway has, "" = none
-- ARGV[10] largest number of gateways in the list
--
-- Result: {state, purges, revision, records, time, before, began}.
--   state    0, or 1 if the log does not contain all purges after ARGV[2]
--   purges   state 0: the purges after ARGV[2], as "fence path"; state 1: one purge of everything,
--            with the fence of the newest purge
--   records  records of the living gateways, the last ones seen first: others may have been written
--            by another program; false if their revision is ARGV[9]
--   time     time in milliseconds at which the gateway was seen: now
--   before   time at which it was seen before; "" = it was not registered
--   began    "#began"
--
-- Other programs may have written to these keys. The script removes a key of another type, a value
-- that is no number or is more than a year ahead of the clock, a gateway seen more than ARGV[8]
-- ahead of the clock, and an entry of the log that is not in the form of a purge. So the fleet
-- recovers from garbage by itself.
--
-- If a gateway has applied a purge that is above the base and not in the log, the server has lost
-- data. If the log has no newer purge, the lost purge becomes the base: gateways that missed it
-- purge everything, and later purges get higher fences, even if the clock went back. If the log has
-- newer purges, the purges that other gateways missed are unknown, and the script adds a purge of
-- everything.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local living = string.format('%.0f', now - ARGV[8])
local clock = time[1] * 1000000 + time[2]
local latest = clock + 366 * 86400 * 1000000

local function isFence(text)
	return text and #text <= 16 and string.find(text, '^%d+$') and tonumber(text) <= latest
end
for i, kind in ipairs({'string', 'zset', 'string', 'zset', 'hash', 'hash'}) do
	local is = redis.call('TYPE', KEYS[i]).ok
	if is ~= 'none' and (is ~= kind or kind == 'string' and not isFence(redis.call('GETRANGE', KEYS[i], 0, 16))) then
		redis.call('DEL', KEYS[i])
	end
end
redis.call('ZREMRANGEBYSCORE', KEYS[2], string.format('(%.0f', latest), '+inf')
redis.call('ZREMRANGEBYSCORE', KEYS[4], string.format('(%.0f', now + ARGV[8]), '+inf')

local applied = ARGV[2]
local seen = redis.call('ZSCORE', KEYS[4], ARGV[1])
if not seen or tonumber(seen) < tonumber(living) or redis.call('HGET', KEYS[6], ARGV[1]) ~= ARGV[7]
	or not isFence(redis.call('HGET', KEYS[6], '#joins')) then
	redis.call('HSET', KEYS[6], '#joins', string.format('%.0f', clock), ARGV[1], ARGV[7])
	redis.call('PUBLISH', ARGV[6], ARGV[1])
end
local began = redis.call('HGET', KEYS[6], '#began')
if not isFence(began) then
	began = string.format('%.0f', clock)
	redis.call('HSET', KEYS[6], '#began', began)
end
redis.call('ZADD', KEYS[4], string.format('%.0f', now), ARGV[1])
redis.call('HSET', KEYS[5], ARGV[1], applied)
for _, gone in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', string.format('%.0f', now - ARGV[5]), 'LIMIT', 0, 16)) do
	redis.call('ZREM', KEYS[4], gone)
	redis.call('HDEL', KEYS[5], gone)
	redis.call('HDEL', KEYS[6], gone)
end
local revision = (redis.call('HGET', KEYS[6], '#joins') or '') .. '.' .. redis.call('ZCOUNT', KEYS[4], living, '+inf')
local records = false
if revision ~= ARGV[9] then
	records = redis.call('HMGET', KEYS[6], unpack(redis.call('ZREVRANGEBYSCORE', KEYS[4], '+inf', living, 'LIMIT', 0, ARGV[10])))
	for i = 1, #records do
		records[i] = records[i] and #records[i] <= 512 and records[i] or ''
	end
end

local last = tonumber(applied)
local base = tonumber(redis.call('GET', KEYS[3]) or 0)
local newest = tonumber(redis.call('ZREVRANGE', KEYS[2], 0, 0, 'WITHSCORES')[2] or 0)
if last > latest then
	last = -1 -- the clock was set back
elseif last > math.max(base, newest) then
	redis.call('SET', KEYS[3], applied)
	if tonumber(redis.call('GET', KEYS[1]) or 0) < last then
		redis.call('SET', KEYS[1], applied)
	end
elseif last > base and redis.call('ZCOUNT', KEYS[2], applied, applied) == 0 then
	local fence = math.max(redis.call('INCR', KEYS[1]), clock, newest + 1)
	local text = string.format('%.0f', fence)
	redis.call('SET', KEYS[1], text)
	redis.call('ZADD', KEYS[2], text, text .. ' ')
	redis.call('PUBLISH', ARGV[6], text)
end
for i = 2, 6 do
	redis.call('PEXPIRE', KEYS[i], ARGV[4])
end

local purges = {}
if last < base then
	purges = {string.format('%.0f ', math.max(base, newest))}
	return {1, purges, revision, records, string.format('%.0f', now), seen or '', began}
end
local read
repeat
	read = redis.call('ZRANGEBYSCORE', KEYS[2], '(' .. applied, '+inf', 'WITHSCORES', 'LIMIT', 0, ARGV[3])
	for i = 1, #read, 2 do
		local fence = string.match(read[i], '^(%d+) ')
		if isFence(fence) and tonumber(fence) == tonumber(read[i + 1]) and #read[i] <= 1024 then
			purges[#purges + 1] = read[i]
		else
			redis.call('ZREM', KEYS[2], read[i])
		end
	end
until #purges > 0 or #read == 0
return {0, purges, revision, records, string.format('%.0f', now), seen or '', began}
