-- Acquires one lock or several together, or returns the lock that is in the way.
--
-- KEYS[1]    fence counter
-- KEYS[2]    first lock; KEYS[3] its queue; KEYS[4] the queue's names by expiry
-- KEYS[5..]  the same three for each further lock
-- ARGV[1]    token of the requester
-- ARGV[2]    ttl in milliseconds
-- ARGV[3]    name in the queue, "" = does not wait
-- ARGV[4]    milliseconds after which the name expires unless it enters the queue again
-- ARGV[5]    "1" = fair: not before the names in the queue
--
-- Result: {1, fence} if acquired; {0, n, remaining milliseconds, token of the holder} if the n-th
-- lock is held. The token is cut to 1,024 bytes, since another program may have written a long one.
-- The token is "" if the lock is free but others are first in its queue.
--
-- One SET writes the lock and its expiry. A lock that has this token already counts as acquired:
-- the reply to an earlier request was lost, or the request arrived twice. The lock may have been
-- extended since, so its expiry is never made sooner.

local waits = ARGV[3] ~= ''

-- The usual case, one free lock that is not fair, costs one command.
local taken = #KEYS == 4 and ARGV[5] ~= '1' and redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])

if not taken then
	-- Returns the first name in the queue that has not expired, or false.
	local function first(queue, living)
		while true do
			local name = redis.pcall('ZRANGE', queue, 0, 0)[1] -- none if the queue is of another type
			if not name then
				return false
			end
			local till = redis.pcall('ZSCORE', living, name)
			if type(till) == 'string' and tonumber(till) > now then
				return name
			end
			leaveQueue(queue, living, name)
		end
	end

	-- Returns the token in the way and its remaining milliseconds, or false.
	local function conflict(lock, queue, living)
		local holder = holderOf(lock)
		if holder == ARGV[1] then
			return false
		elseif holder then
			return holder, redis.call('PTTL', lock)
		elseif ARGV[5] == '1' then
			local head = first(queue, living)
			return head and head ~= ARGV[3] and '', 0
		end
		return false
	end

	for i = 2, #KEYS, 3 do
		local holder, ttl = conflict(KEYS[i], KEYS[i + 1], KEYS[i + 2])
		if holder then
			if waits then
				enqueue(KEYS[i + 1], KEYS[i + 2])
			end
			return {0, (i + 1) / 3, ttl, string.sub(holder, 1, 1024)}
		end
	end
	for i = 2, #KEYS, 3 do
		-- The lock is free, or has this token.
		redis.call('SET', KEYS[i], ARGV[1], 'PX', math.max(ARGV[2], redis.call('PTTL', KEYS[i])))
	end
end

if waits then
	for i = 2, #KEYS, 3 do
		leaveQueue(KEYS[i + 1], KEYS[i + 2], ARGV[3])
	end
end

return {1, nextFence()}
