-- Gives locks back and tells the first that waits for each.
--
-- KEYS[1..3]  lock, its queue, until when those in the queue live; and the same three of each further lock
-- ARGV[1]     token of the holder
-- ARGV[2]     what stands in front of a process's name in the name of its channel
--
-- Result: how many of the locks were held with this token. The others are left alone: they belong to somebody else.
--
-- A name in the queue is "process" or "process/number"; the message is "name lock". The next in the queue is told as well
-- when nobody listens for the first. In a cluster the server cannot see who listens on other nodes: then up to eight are told.

local function wake(lock, queue, living)
	local names = redis.call('ZRANGE', queue, 0, 7)
	if #names == 0 then
		return
	end
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	for _, name in ipairs(names) do
		local till = redis.call('ZSCORE', living, name)
		if till and tonumber(till) > now then
			local slash = string.find(name, '/', 1, true)
			local process = slash and string.sub(name, 1, slash - 1) or name
			if redis.call('PUBLISH', ARGV[2] .. process, name .. ' ' .. lock) > 0 then
				return
			end
		end
	end
end

local released = 0
for i = 1, #KEYS, 3 do
	if redis.call('GET', KEYS[i]) == ARGV[1] then
		redis.call('DEL', KEYS[i])
		released = released + 1
		wake(KEYS[i], KEYS[i + 1], KEYS[i + 2])
	end
end
return released
