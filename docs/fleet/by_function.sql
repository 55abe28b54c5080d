-- Bytes that each function and what it calls have allocated, with their 95 % interval. A function
-- counts once in a stack.
with
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
    select stack_id,
      sum(samples) as n,
      sum(bytes) as y,
      sum(bytes_var) as v,
      sum(bytes_own) as own,
      max(bytes_top) as w1,
      max(bytes_top2) as w2
    from alloc group by stack_id
  ),
  s as (
    select f.function as function,
      sum(a.n) as n,
      cast(sum(a.y) as double) as y,
      sum(a.v) as v,
      cast(sum(a.own) as double) as own,
      cast(max(a.w1) as double) as w1,
      cast(max(a.w2) as double) as w2
    from a join f on a.stack_id = f.stack_id group by f.function
  ),
  -- Mean and variance of what may have been missed: one more block like the largest.
  m as (select function, n, y, v, own, w1, w2, y - own + w1 as my, v + w2 as mv from s)
select
  function,
  n as samples,
  y as allocated,
  case when v > 0e0
    then greatest(own, y * power(greatest(
      1e0 - v / (9e0 * y * y) - 1.959963985e0 * sqrt(v) / (3e0 * y), 0e0), 3e0))
    else y end as low,
  case when v > 0e0
    then greatest(y, own + greatest(
      my * power(greatest(
        1e0 - mv / (9e0 * my * my) + 1.959963985e0 * sqrt(mv) / (3e0 * my), 0e0), 3e0),
      case when my * my / mv > 0.025e0 then w2 / w1 - w1 else 0e0 end))
    else y end as high
from m
order by allocated desc, function;
