-- Takes one lock, or several together, or says who is in the way.
--
-- KEYS[1]    fence counter of the slot
-- KEYS[2]    first lock; KEYS[3] its queue; KEYS[4] until when those in the queue live
-- KEYS[5..]  the same three of each further lock
-- ARGV[1]    token of whoever wants it
-- ARGV[2]    ttl in milliseconds
-- ARGV[3]    name in the queue, "" = does not wait
-- ARGV[4]    how long, in milliseconds, the name counts as waiting unless it comes again
-- ARGV[5]    "1" = first come, first served: not before those that are in the queue already
--
-- Result: {1, fence} when taken; {0, n, milliseconds that it may last, token of the holder} when the n-th lock is held. With
-- a queue before a free lock the token is "".
--
-- The lock and its expiry are one SET. The clock is the server's. A lock that has this token already is taken: the answer to
-- the first request was lost on its way, or the request comes twice; it has been extended since, perhaps, so it does not end
-- sooner for that. The fence is a count that never falls behind the clock in microseconds, so it rises
-- even when the server has lost its data.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)
local waits = ARGV[3] ~= ''

-- One lock that is free and not fair, which is the usual case, costs one command.
local taken = #KEYS == 4 and ARGV[5] ~= '1' and redis.call('SET', KEYS[2], ARGV[1], 'NX', 'PX', ARGV[2])

if not taken then
	local function enqueue(queue, living)
		for _, dead in ipairs(redis.call('ZRANGEBYSCORE', living, '-inf', now, 'LIMIT', 0, 16)) do
			redis.call('ZREM', queue, dead)
			redis.call('ZREM', living, dead)
		end
		local arrival = string.format('%.0f', time[1] * 1000000 + time[2])
		redis.call('ZADD', queue, 'NX', arrival, ARGV[3])
		redis.call('ZADD', living, string.format('%.0f', now + ARGV[4]), ARGV[3])
		local keep = math.max(ARGV[4] * 2, redis.call('PTTL', queue)) -- others may be more patient
		redis.call('PEXPIRE', queue, keep)
		redis.call('PEXPIRE', living, keep)
	end

	-- The first in the queue that lives, or false.
	local function first(queue, living)
		while true do
			local name = redis.call('ZRANGE', queue, 0, 0)[1]
			if not name then
				return false
			end
			local till = redis.call('ZSCORE', living, name)
			if till and tonumber(till) > now then
				return name
			end
			redis.call('ZREM', queue, name)
			redis.call('ZREM', living, name)
		end
	end

	-- Who is in the way, with the milliseconds that he may last, or nothing.
	local function inTheWay(lock, queue, living)
		local holder = redis.call('GET', lock)
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
		local holder, ttl = inTheWay(KEYS[i], KEYS[i + 1], KEYS[i + 2])
		if holder then
			if waits then
				enqueue(KEYS[i + 1], KEYS[i + 2])
			end
			return {0, (i + 1) / 3, ttl, holder}
		end
	end
	for i = 2, #KEYS, 3 do
		-- It is free, or has this token.
		redis.call('SET', KEYS[i], ARGV[1], 'PX', math.max(ARGV[2], redis.call('PTTL', KEYS[i])))
	end
end

if waits then
	for i = 2, #KEYS, 3 do
		redis.call('ZREM', KEYS[i + 1], ARGV[3])
		redis.call('ZREM', KEYS[i + 2], ARGV[3])
	end
end

local fence = time[1] * 1000000 + time[2]
local last = tonumber(redis.call('SET', KEYS[1], string.format('%.0f', fence), 'GET') or 0)
if last >= fence then
	fence = last + 1
	redis.call('SET', KEYS[1], string.format('%.0f', fence))
end
return {1, fence}
