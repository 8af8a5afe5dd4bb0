-- Functions of the scripts that acquire locks, and of all scripts of folder locks. These scripts
-- begin with this file. The time is that of the server. KEYS[1] is the fence counter.

local time = redis.call('TIME')
local now = time[1] * 1000 + math.floor(time[2] / 1000)

-- Returns the next fence. It is never less than the clock in microseconds, so fences rise even if
-- the server has lost its data, or another program has replaced the counter by a key of another
-- type.
local function nextFence()
	local fence = time[1] * 1000000 + time[2]
	local text = string.format('%.0f', fence)
	local last = redis.pcall('SET', KEYS[1], text, 'GET')
	if type(last) == 'table' then -- an error
		if redis.call('TYPE', KEYS[1]).ok ~= 'string' then -- a key of another program
			redis.call('DEL', KEYS[1])
		end
		last = redis.call('SET', KEYS[1], text, 'GET')
	end
	last = tonumber(last) or 0
	if last >= fence then
		fence = last + 1
		redis.call('SET', KEYS[1], string.format('%.0f', fence))
	end
	return fence
end

-- Returns the token in a lock, or false if it is free.
local function holderOf(lock)
	local holder = redis.pcall('GET', lock)
	return type(holder) == 'table' and '?' or holder -- an error: a key of another type, of another program
end

-- Removes a name from a lock's queue. A queue of another type, of another program, has no names.
local function leaveQueue(queue, living, name)
	redis.pcall('ZREM', queue, name)
	redis.pcall('ZREM', living, name)
end

-- Adds ARGV[3] to a lock's queue, for ARGV[4] milliseconds.
local function enqueue(queue, living)
	for _, key in ipairs({queue, living}) do
		local kind = redis.call('TYPE', key).ok
		if kind ~= 'zset' and kind ~= 'none' then -- of another program, without an expiry
			redis.call('DEL', key)
		end
	end
	for _, dead in ipairs(redis.call('ZRANGEBYSCORE', living, '-inf', now, 'LIMIT', 0, 16)) do
		leaveQueue(queue, living, dead)
	end
	local arrival = string.format('%.0f', time[1] * 1000000 + time[2])
	redis.call('ZADD', queue, 'NX', arrival, ARGV[3])
	redis.call('ZADD', living, string.format('%.0f', now + ARGV[4]), ARGV[3])
	local keep = math.max(ARGV[4] * 2, redis.call('PTTL', queue)) -- others may have set a longer one
	redis.call('PEXPIRE', queue, keep)
	redis.call('PEXPIRE', living, keep)
end
