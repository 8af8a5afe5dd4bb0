-- Notifies the first waiter in a lock's queue that the lock is free. The scripts that release locks
-- or leave a queue begin with this function; their ARGV[2] is the beginning of the channels' names.
--
-- A name in the queue is "process" or "process/number"; the message is "name lock". If no client
-- listens for the first name, the next one is notified, at most eight in all. A server in a Cluster
-- does not see the clients that listen on other nodes: there all eight are notified.

local function wake(lock, queue, living)
	local names = redis.pcall('ZRANGE', queue, 0, 7)
	if #names == 0 then -- or the queue is of another type: no waiters
		return
	end
	local time = redis.call('TIME')
	local now = time[1] * 1000 + math.floor(time[2] / 1000)
	for _, name in ipairs(names) do
		local till = redis.pcall('ZSCORE', living, name)
		if type(till) == 'string' and tonumber(till) > now then
			local slash = string.find(name, '/', 1, true)
			local process = slash and string.sub(name, 1, slash - 1) or name
			if redis.call('PUBLISH', ARGV[2] .. process, name .. ' ' .. lock) > 0 then
				return
			end
		end
	end
end

