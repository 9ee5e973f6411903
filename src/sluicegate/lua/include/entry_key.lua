-- Whether the deduplication marker of an entry is freed when its message ends, and the deduplication key.
local function is_bound(entry)
  return string.byte(entry) % 2 == 0 -- of kind 2, 6 or 8
end

local function key_of(entry)
  return string.match(entry, '^[^\31]+\31([^\31]*)', 30)
end
