-- Reads an entry, unless the file was purged after the lease that it was written under was taken.
--
-- KEYS[1]    the entry
-- KEYS[2..]  fences of the last purges of all files, of each folder above the file, and of the file
--
-- Result: the value, or false.

local entry = redis.call('HMGET', KEYS[1], 'fence', 'value')
if not entry[1] or not entry[2] then
	return false
end
for _, purged in ipairs(redis.call('MGET', unpack(KEYS, 2))) do
	if purged and tonumber(purged) > tonumber(entry[1]) then
		return false
	end
end
return entry[2]
