-- Gives locks a new time to live, all of them or none.
--
-- KEYS     the locks
-- ARGV[1]  token of the holder
-- ARGV[2]  ttl in milliseconds from now
-- ARGV[3]  "1" = they may end sooner than they would have
--
-- Result: 1 when all were held with this token and live on, 0 when one was not: nothing has changed then.
--
-- A request that was held up on its way, and sent again meanwhile, may come after those that were made later. So it makes no lock
-- end sooner unless that is what was asked for.

for i = 1, #KEYS do
	if redis.call('GET', KEYS[i]) ~= ARGV[1] then
		return 0
	end
end
for i = 1, #KEYS do
	if ARGV[3] == '1' or redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
		redis.call('PEXPIRE', KEYS[i], ARGV[2])
	end
end
return 1
