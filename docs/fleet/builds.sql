-- Functions whose share of a service's allocated bytes differs between two builds. The two builds
-- of a service that run on most hosts are compared, host by host: samples alone would call
-- differences between hosts a difference of the builds.
--
-- t of Welch with Satterthwaite's degrees of freedom; its p-value through a normal variable (D. L.
-- Wallace, "Bounds on normal approximations to Student's and the chi-square distributions", Annals
-- of Mathematical Statistics 30, 1959). p_adjusted is Benjamini and Hochberg's over all rows.
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
  h as (
    select service, build_id, host, cast(sum(bytes) as double) as y, min(ts) as seen
    from alloc where build_id <> '' group by service, build_id, host having sum(bytes) > 0
  ),
  b as (
    select service, build_id, cast(count(*) as double) as m, min(seen) as seen
    from h group by service, build_id
  ),
  r as (
    select service, build_id, m, seen,
      row_number() over (partition by service order by m desc, build_id) as rank_by_hosts
    from b where m > 1e0
  ),
  two as (
    select service, build_id, m,
      row_number() over (partition by service order by seen, build_id) as side,
      count(*) over (partition by service) as sides
    from r where rank_by_hosts <= 2
  ),
  a as (
    select a.service as service, a.build_id as build_id, a.host as host, f.function as function,
      cast(sum(a.bytes) as double) as x
    from alloc a join f on a.stack_id = f.stack_id
    group by a.service, a.build_id, a.host, f.function
  ),
  x as (
    select a.service as service, a.function as function, t.side as side, max(t.m) as m,
      sum(a.x / h.y) / max(t.m) as share,
      sum((a.x / h.y) * (a.x / h.y)) as squares
    from a
      join h on a.service = h.service and a.build_id = h.build_id and a.host = h.host
      join two t on a.service = t.service and a.build_id = t.build_id
    where t.sides = 2
    group by a.service, a.function, t.side
  ),
  -- A function that a build never calls has no row in x, and share 0 on all of its hosts.
  w as (
    select o.service as service, o.function as function, t.side as side, t.m as m,
      coalesce(x.share, 0e0) as share,
      case when x.m > 0e0
        then greatest(x.squares - t.m * x.share * x.share, 0e0) / (t.m - 1e0) / t.m
        else 0e0 end as v
    from (select distinct service, function from x) o
      join two t on o.service = t.service
      left join x on o.service = x.service and o.function = x.function and t.side = x.side
  ),
  d as (
    select service, function,
      sum(case when side = 1 then share else 0e0 end) as share_1,
      sum(case when side = 2 then share else 0e0 end) as share_2,
      sum(case when side = 1 then -share else share end) as difference,
      sum(v) as variance,
      sum(v) * sum(v) / sum(v * v / (m - 1e0)) as df,
      min(m) as fewest_hosts
    from w group by service, function having sum(v) > 1e-24
  ),
  z as (
    select service, function, share_1, share_2, difference, variance, df, fewest_hosts,
      sqrt(df * ln(1e0 + difference * difference / variance / df)) * (8e0 * df + 1e0) / (8e0 * df + 3e0)
        / 1.4142135623730951e0 as q
    from d
  ),
  e as (
    select service, function, share_1, share_2, difference, variance, df, fewest_hosts, q,
      1e0 / (1e0 + q / 2e0) as k
    from z
  ),
  p as (
    -- erfc(q) with a relative error below 1.2e-7: W. H. Press et al., Numerical Recipes, 6.2.
    select service, function, share_1, share_2, difference, variance, df, fewest_hosts,
      k * exp(-q * q - 1.26551223e0 + k * (1.00002368e0 + k * (0.37409196e0 + k * (0.09678418e0
        + k * (-0.18628806e0 + k * (0.27886807e0 + k * (-1.13520398e0 + k * (1.48851587e0
        + k * (-0.82215223e0 + k * 0.17087277e0))))))))) as p
    from e
  ),
  n as (
    select service, function, share_1, share_2, difference, variance, df, fewest_hosts, p,
      p * (count(*) over ()) / (row_number() over (order by p, service, function)) as scaled
    from p
  )
select
  n.service as service,
  n.function as function,
  one.build_id as build_1,
  other.build_id as build_2,
  n.fewest_hosts as fewest_hosts,
  n.share_1 as share_1,
  n.share_2 as share_2,
  n.difference as difference,
  -- Student's quantile by the first terms of its expansion (Abramowitz and Stegun, 26.7.5).
  n.difference - (1.959963985e0 + 2.372271e0 / n.df + 2.822499e0 / n.df / n.df) * sqrt(n.variance) as low,
  n.difference + (1.959963985e0 + 2.372271e0 / n.df + 2.822499e0 / n.df / n.df) * sqrt(n.variance) as high,
  n.p as p,
  least(1e0, min(n.scaled) over (order by n.p desc, n.service desc, n.function desc
    rows between unbounded preceding and current row)) as p_adjusted
from n
  join two one on n.service = one.service and one.side = 1
  join two other on n.service = other.service and other.side = 2
order by p_adjusted, p, service, function;
