-- Gives locks a new time to live, all of them or none.
--
-- KEYS     the locks
-- ARGV[1]  token of the holder
-- ARGV[2]  ttl in milliseconds from now
--
-- Result: 1 when all were held with this token and live on, 0 when one was not: nothing has changed then.

for i = 1, #KEYS do
	if redis.call('GET', KEYS[i]) ~= ARGV[1] then
		return 0
	end
end
for i = 1, #KEYS do
	redis.call('PEXPIRE', KEYS[i], ARGV[2])
end
return 1
