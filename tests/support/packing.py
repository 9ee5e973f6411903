"""A publish stores blocks here, so that whole suites run on them: the script packs what it has made as entries."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from unittest import mock

from sluicegate.core import scripts

_ENQUEUE = """--- @include block_pieces
-- Store runs of new messages that may share a block as blocks.
local function packed_values(entries)
  local values, run, more = {}, {}, 0
  local function close()
    if #run < LEAST then
      for i = 1, #run do
        values[#values + 1] = run[i].entry
      end
    else
      local keys, payloads, key_ends, payload_ends, k, p = {}, {}, {}, {}, 0, 0
      for i = 1, #run do
        keys[i], payloads[i], k, p = run[i].key, run[i].payload, k + #run[i].key, p + #run[i].payload
        key_ends[i], payload_ends[i] = struct.pack('<I4', k), struct.pack('<I4', p)
      end
      local first, ids = run[1], {}
      for i = 1, #run do
        ids[i] = run[i].position
      end
      values[#values + 1] = (string.sub(first.entry, 1, 1) == '1' and '3' or '4') .. string.sub(first.entry, 2, 29)
        .. table.concat({first.batch, to_ranges(ids), #run, '0,0', '', k, p, first.headers, table.concat(keys)}, '\\31')
        .. table.concat(payloads) .. table.concat(key_ends) .. table.concat(payload_ends)
      more = more + #run - 1
    end
    run = {}
  end
  for i = 1, #entries do
    local entry, kind = entries[i], string.sub(entries[i], 1, 1)
    local id, key, headers, payload = string.match(entry, '^([^\\31]+)\\31([^\\31]*)\\31([^\\31]*)\\31(.*)$', 30)
    local batch, position = string.match(id, '^(.*)%-(%d+)$')
    if kind ~= '1' and kind ~= '2' or #payload > 8192 then
      close()
      values[#values + 1] = entry
    else
      if #run == MOST or run[1] and (run[1].headers ~= headers or run[1].batch ~= batch) then
        close()
      end
      run[#run + 1] = {
        entry = entry, batch = batch, position = tonumber(position), key = key, headers = headers, payload = payload,
      }
    end
  end
  close()
  return values, more
end

"""
_LPUSH = "      redis.call('LPUSH', pending, unpack(entries, first, last))\n"


@contextmanager
def packing(least: int = 2, most: int = 5) -> Iterator[None]:
    """Let every publish store runs of at least `least` messages as blocks of at most `most` meanwhile."""
    read = scripts._read_include

    def packed(name: str) -> str:
        text = read(name)
        if name != "enqueue":
            return text
        assert text.count(_LPUSH) == 1
        pushes = (
            "      local values, more = packed_values({unpack(entries, first, last)})\n"
            "      if more > 0 then redis.call('HINCRBY', KEYS[2], 'packed', more) end\n"
            "      redis.call('LPUSH', pending, unpack(values))\n"
        )
        head = _ENQUEUE.replace("LEAST", str(least)).replace("MOST", str(most))
        return head + text.replace(_LPUSH, pushes)

    with mock.patch.object(scripts, "_read_include", packed):
        _forget()
        try:
            yield
        finally:
            _forget()


def _forget() -> None:
    scripts.load.cache_clear()
    scripts.load_all.cache_clear()
