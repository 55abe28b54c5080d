-- Held bytes of each service and function at the last snapshot of each host, less those at its
-- first. Blocks that are held at both moments are in both estimates, and the interval does not
-- know it: the interval is wider than it had to be, never narrower.
with
  t as (
    select host, min(ts) as first, max(ts) as last
    from coverage where kind = 'live' group by host having min(ts) < max(ts)
  ),
  best as (select frame_id, max(quality) as quality from symbols group by frame_id),
  names as (
    select distinct y.frame_id as frame_id, y.function as function
    from symbols y join best b on y.frame_id = b.frame_id and y.quality = b.quality
  ),
  f as (
    select distinct k.stack_id as stack_id, n.function as function
    from stacks k join names n on k.frame_id = n.frame_id
  ),
  a as (
    select l.service as service, l.stack_id as stack_id,
      sum(case when l.ts = t.first then l.bytes else 0 end) as before,
      sum(case when l.ts = t.last then l.bytes else 0 end) as after,
      sum(l.bytes_var) as v
    from live l join t on l.host = t.host
    where l.ts = t.first or l.ts = t.last
    group by l.service, l.stack_id
  ),
  s as (
    select a.service as service, f.function as function,
      cast(sum(a.before) as double) as before,
      cast(sum(a.after) as double) as after,
      sum(a.v) as v
    from a join f on a.stack_id = f.stack_id group by a.service, f.function
  )
select
  service,
  function,
  before as held_first,
  after as held_last,
  after - before as growth,
  after - before - 1.959963985e0 * sqrt(v) as low,
  after - before + 1.959963985e0 * sqrt(v) as high
from s
order by growth desc, service, function;
