-- Acquires a lock that its owner may acquire again while holding it.
--
-- KEYS[1]  fence counter of the shard
-- KEYS[2]  lock; KEYS[3] its queue; KEYS[4] the queue's names by expiry
-- KEYS[5]  holds of the owner: a hash of hold -> 1, and "fence" -> fence of the first
-- ARGV[1]  token of the owner
-- ARGV[2]  ttl in milliseconds
-- ARGV[3]  name in the queue, "" = does not wait
-- ARGV[4]  milliseconds after which the name expires unless it enters the queue again
-- ARGV[5]  name of this hold, so that a repeated request counts once
-- ARGV[6]  "1" = extend: only if the owner has this hold already
--
-- Result: {1, fence} if acquired, with the same fence for all holds of an owner; {0, 1, remaining
-- milliseconds, token of the holder} if another owner has it. Lock and holds expire together, at
-- the latest time that any of the holds requested.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local holder = redis.call('GET', KEYS[2])
local ttl = redis.call('PTTL', KEYS[2])

local function enqueue() -- as in acquire.lua
	for _, dead in ipairs(redis.call('ZRANGEBYSCORE', KEYS[4], '-inf', now, 'LIMIT', 0, 16)) do
		redis.call('ZREM', KEYS[3], dead)
		redis.call('ZREM', KEYS[4], dead)
	end
	local arrival = string.format('%.0f', time[1] * 1000000 + time[2])
	redis.call('ZADD', KEYS[3], 'NX', arrival, ARGV[3])
	redis.call('ZADD', KEYS[4], string.format('%.0f', now + ARGV[4]), ARGV[3])
	local keep = math.max(ARGV[4] * 2, redis.call('PTTL', KEYS[3])) -- others may have set a longer one
	redis.call('PEXPIRE', KEYS[3], keep)
	redis.call('PEXPIRE', KEYS[4], keep)
end

if ARGV[6] == '1' and (holder ~= ARGV[1] or redis.call('HEXISTS', KEYS[5], ARGV[5]) == 0) then
	return {0, 1, 0, holder or ''}
end
if holder and holder ~= ARGV[1] then
	if ARGV[3] ~= '' then
		enqueue()
	end
	return {0, 1, ttl, holder}
end

local fence = tonumber(redis.call('HGET', KEYS[5], 'fence') or 0)
if not holder or fence == 0 then
	redis.call('DEL', KEYS[5])
	fence = redis.call('INCR', KEYS[1])
	local clock = time[1] * 1000000 + time[2]
	if fence < clock then
		fence = clock
		redis.call('SET', KEYS[1], string.format('%.0f', fence))
	end
end
local till = math.max(ttl, tonumber(ARGV[2]))
redis.call('SET', KEYS[2], ARGV[1], 'PX', till)
redis.call('HSET', KEYS[5], ARGV[5], '1', 'fence', string.format('%.0f', fence))
redis.call('PEXPIRE', KEYS[5], till)
if ARGV[3] ~= '' then
	redis.call('ZREM', KEYS[3], ARGV[3])
	redis.call('ZREM', KEYS[4], ARGV[3])
end
return {1, fence}
