-- Bytes that each service and function has allocated on all hosts, where only a share of the hosts
-- sends stacks (`samplerd --export-share`), with their 95 % interval. All hosts count their bytes.
--
-- Ratio estimator: the counted bytes of all hosts, times the function's share of them on the hosts
-- that were drawn. Each host is drawn by itself, anew each day, with the probability `inclusion`
-- (Poisson sampling). The variance has two stages: residuals between the drawn hosts, and samples
-- within them (Särndal, Swensson and Wretman, Model Assisted Survey Sampling, 1992, 4.3 and 7.3).
-- A drawn host without a sample of a function counts with 0 bytes.
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
  w as (select distinct host, ts, day from coverage where kind = 'alloc'),
  -- What is drawn: a host on one day, here with one of its services.
  u as (
    select service, host, day,
      max(drawn) as is_drawn,
      max(inclusion) as p,
      cast(sum(exact_bytes) as double) as x,
      sum(case when exact_bytes is null then 1 else 0 end) as unknown
    from coverage where kind = 'alloc' group by service, host, day
  ),
  t as (
    select service,
      count(distinct host) as hosts,
      count(distinct case when is_drawn = 1 then host else null end) as drawn_hosts,
      cast(sum(is_drawn) as double) as m,
      case when sum(unknown) = 0 then sum(x) else null end as x_all,
      sum(case when is_drawn = 1 then x / p else 0e0 end) as x_drawn,
      sum(case when is_drawn = 1 then (1e0 - p) / (p * p) * x * x else 0e0 end) as kxx,
      max(case when is_drawn = 1 then 1e0 - p else 0e0 end) as left_out
    from u group by service
  ),
  a as (
    select l.service as service, l.host as host, w.day as day, l.stack_id as stack_id,
      sum(l.samples) as n,
      sum(l.bytes) as y,
      sum(l.bytes_var) as v,
      sum(l.bytes_own) as own,
      max(l.bytes_top) as w1,
      max(l.bytes_top2) as w2
    from alloc l join w on l.host = w.host and l.ts = w.ts
    group by l.service, l.host, w.day, l.stack_id
  ),
  h as (
    select a.service as service, f.function as function, a.host as host, a.day as day,
      sum(a.n) as n,
      cast(sum(a.y) as double) as y,
      sum(a.v) as v,
      cast(sum(a.own) as double) as own,
      cast(max(a.w1) as double) as w1,
      cast(max(a.w2) as double) as w2
    from a join f on a.stack_id = f.stack_id
    group by a.service, f.function, a.host, a.day
  ),
  s as (
    select h.service as service, h.function as function,
      sum(h.n) as n,
      sum(h.y / u.p) as y,
      sum(h.v / u.p) as v,
      sum(h.own) as own,
      max(h.w1 / u.p) as w1,
      max(h.w2 / (u.p * u.p)) as w2,
      sum((1e0 - u.p) / (u.p * u.p) * h.y * h.y) as kyy,
      sum((1e0 - u.p) / (u.p * u.p) * h.y * u.x) as kxy
    from h join u on h.service = u.service and h.host = u.host and h.day = u.day
    group by h.service, h.function
  ),
  r as (
    select s.service as service, s.function as function, t.hosts as hosts,
      t.drawn_hosts as drawn_hosts, s.n as n, s.own as own, t.x_all as x_all,
      t.x_all / t.x_drawn as g,
      s.y as y,
      s.v as v,
      s.w1 as w1,
      s.w2 as w2,
      t.left_out as left_out,
      t.m as m,
      -- Squares of the residuals y − (Σy/Σx)·x.
      greatest(s.kyy - 2e0 * s.y / t.x_drawn * s.kxy + s.y / t.x_drawn * (s.y / t.x_drawn) * t.kxx, 0e0) as residual
    from s join t on s.service = t.service
    where t.x_drawn > 0e0
  ),
  e as (
    select service, function, hosts, drawn_hosts, n, own, x_all, left_out, m,
      g * y as y,
      g * w1 as w1,
      g * g * w2 as w2,
      g * g * (v + case when m > 1e0 then m / (m - 1e0) * residual else 0e0 end) as v,
      -- Student's quantile by the first terms of its expansion (Abramowitz and Stegun, 26.7.5).
      case when left_out > 0e0 and m > 1e0
        then 1.959963985e0 + 2.372271e0 / (m - 1e0) + 2.822499e0 / (m - 1e0) / (m - 1e0)
        else 1.959963985e0 end as q
    from r
  ),
  -- Mean and variance of what may have been missed: one more block like the largest.
  z as (
    select service, function, hosts, drawn_hosts, n, own, x_all, left_out, m, y, v, q,
      y + w1 as my, v + w2 as mv
    from e
  )
select
  service,
  function,
  hosts,
  drawn_hosts,
  n as samples,
  y as allocated,
  case
    when left_out > 0e0 and m < 2e0 then own
    when v > 0e0 then greatest(own, y * power(greatest(
      1e0 - v / (9e0 * y * y) - q * sqrt(v) / (3e0 * y), 0e0), 3e0))
    else y end as low,
  case
    -- One host says nothing of how hosts differ.
    when left_out > 0e0 and m < 2e0 then x_all
    when v > 0e0 then greatest(y, least(x_all, my * power(greatest(
      1e0 - mv / (9e0 * my * my) + q * sqrt(mv) / (3e0 * my), 0e0), 3e0)))
    else y end as high,
  x_all as counted
from z
order by allocated desc, service, function;
