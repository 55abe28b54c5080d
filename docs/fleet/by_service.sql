-- Bytes that each service has allocated, with their 95 % interval, beside the bytes that were counted.
with
  s as (
    select service,
      sum(samples) as n,
      cast(sum(bytes) as double) as y,
      sum(bytes_var) as v,
      cast(sum(bytes_own) as double) as own,
      cast(max(bytes_top) as double) as w1,
      cast(max(bytes_top2) as double) as w2
    from alloc group by service
  ),
  -- Mean and variance of what may have been missed: one more block like the largest.
  m as (select service, n, y, v, own, w1, w2, y - own + w1 as my, v + w2 as mv from s),
  c as (
    select service,
      count(distinct host) as hosts,
      max(interval_bytes) as r,
      sum(processes * window_ns) / sum(window_ns) as processes,
      case when count(exact_bytes) = count(*) then sum(exact_bytes) else null end as counted
    from coverage where kind = 'alloc' group by service
  )
select
  c.service as service,
  c.hosts as hosts,
  coalesce(m.n, 0) as samples,
  coalesce(m.y, 0e0) as allocated,
  case when m.v > 0e0
    then greatest(m.own, m.y * power(greatest(
      1e0 - m.v / (9e0 * m.y * m.y) - 1.959963985e0 * sqrt(m.v) / (3e0 * m.y), 0e0), 3e0))
    else coalesce(m.y, 0e0) end as low,
  case when m.v > 0e0
    then greatest(m.y, m.own + greatest(
      m.my * power(greatest(
        1e0 - m.mv / (9e0 * m.my * m.my) + 1.959963985e0 * sqrt(m.mv) / (3e0 * m.my), 0e0), 3e0),
      case when m.my * m.my / m.mv > 0.025e0 then m.w2 / m.w1 - m.w1 else 0e0 end))
    -- So many bytes leave no sample with 2.5 %: R ln 40.
    when coalesce(m.n, 0) = 0 and c.r > 1 then 3.688879454e0 * c.r
    else coalesce(m.y, 0e0) end as high,
  c.counted as counted
from c left join m on c.service = m.service
order by allocated desc, service;
