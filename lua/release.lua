-- Releases locks and notifies the first waiter of each.
--
-- KEYS[1..3]  lock, its queue, the queue's names by expiry; the same for each further lock
-- ARGV[1]     token of the holder
-- ARGV[2]     beginning of the channels' names; the name of a process follows
--
-- Result: the number of locks that had this token. The others belong to other holders and stay
-- unchanged.

local released = 0
for i = 1, #KEYS, 3 do
	if redis.call('GET', KEYS[i]) == ARGV[1] then
		redis.call('DEL', KEYS[i])
		released = released + 1
		wake(KEYS[i], KEYS[i + 1], KEYS[i + 2])
	end
end
return released
