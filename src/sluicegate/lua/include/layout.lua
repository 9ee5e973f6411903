--- @include numbers
-- The counter `layout` says which layout a queue stores: 3 once it has stored blocks. What a newer one looks like is
-- unknown here, so a script answers this error, and nothing is misread.
local function newer_layout(layout)
  return to_integer(layout) > 3 and {err = 'LAYOUT ' .. to_integer(layout)} or nil
end
