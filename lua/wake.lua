-- Tells the first in a lock's queue that it is free. It stands in front of the scripts that give locks back. ARGV[2] there is what
-- stands in front of a process's name in the name of its channel.
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

