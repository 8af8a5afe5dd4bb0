-- Acquires a lock that its owner may acquire again while holding it.
--
-- KEYS[1]  fence counter
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
-- milliseconds, token of the holder, as in acquire.lua} if another owner has it; {0} if there is
-- nothing to extend. Lock and holds expire together, at the latest time that any of the holds
-- requested.

local holder = holderOf(KEYS[2])
local ttl = redis.call('PTTL', KEYS[2])

if ARGV[6] == '1' and (holder ~= ARGV[1] or redis.call('HEXISTS', KEYS[5], ARGV[5]) == 0) then
	return {0}
end
if holder and holder ~= ARGV[1] then
	if ARGV[3] ~= '' then
		enqueue(KEYS[3], KEYS[4])
	end
	return {0, 1, ttl, string.sub(holder, 1, 1024)}
end

if not holder then
	redis.call('DEL', KEYS[5]) -- holds of a lock that has expired, or a key of another program
end
local fence = tonumber(redis.call('HGET', KEYS[5], 'fence') or 0)
if fence == 0 then
	fence = nextFence()
end
local till = math.max(ttl, tonumber(ARGV[2]))
if holder then
	redis.call('PEXPIRE', KEYS[2], till) -- a server without free memory does this too
else
	redis.call('SET', KEYS[2], ARGV[1], 'PX', till)
end
redis.call('HSET', KEYS[5], ARGV[5], '1', 'fence', string.format('%.0f', fence))
redis.call('PEXPIRE', KEYS[5], till)
if ARGV[3] ~= '' then
	leaveQueue(KEYS[3], KEYS[4], ARGV[3])
end
return {1, fence}
