-- Sets a new time to live, on all locks or on none.
--
-- KEYS     the locks
-- ARGV[1]  token of the holder
-- ARGV[2]  ttl in milliseconds from now
--
-- Result: 1 if all locks had this token, 0 and no change if one had not.
--
-- A delayed request, or one that was sent again, may arrive after later ones. So no lock expires
-- sooner than before.

for i = 1, #KEYS do
	if redis.call('GET', KEYS[i]) ~= ARGV[1] then
		return 0
	end
end
for i = 1, #KEYS do
	if redis.call('PTTL', KEYS[i]) < tonumber(ARGV[2]) then
		redis.call('PEXPIRE', KEYS[i], ARGV[2])
	end
end
return 1
