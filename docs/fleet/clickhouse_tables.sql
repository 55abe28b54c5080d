-- Tables of a ClickHouse server, for `samplerd --export clickhouse+http://HOST:8123/DATABASE`.
-- clickhouse-client --database DATABASE --queries-file clickhouse_tables.sql
--
-- A server remembers so many insertions of each table as `non_replicated_deduplication_window` says
-- (`replicated_deduplication_window` for a ReplicatedMergeTree), and takes a repeated one once. It
-- has to be at least the number of hosts, times the windows of an hour: a host repeats for so long.
create table if not exists alloc (
  ts DateTime64(6, 'UTC'),
  window_ns Int64,
  host LowCardinality(String),
  service LowCardinality(String),
  container LowCardinality(String),
  executable LowCardinality(String),
  build_id LowCardinality(String),
  stack_id Int64,
  samples Int64,
  bytes Int64,
  bytes_var Float64,
  bytes_own Int64,
  bytes_top Float32,
  bytes_top2 Float32,
  objects Float64,
  objects_var Float64,
  objects_top Float32,
  objects_top2 Float32
) engine = MergeTree
partition by toDate(ts) order by (service, build_id, stack_id, host, ts)
ttl toDateTime(ts) + interval 30 day
settings non_replicated_deduplication_window = 10000;

create table if not exists live as alloc;

create table if not exists coverage (
  kind LowCardinality(String),
  ts DateTime64(6, 'UTC'),
  window_ns Int64,
  host LowCardinality(String),
  service LowCardinality(String),
  container LowCardinality(String),
  executable LowCardinality(String),
  build_id LowCardinality(String),
  inclusion Float64,
  day Int32,
  drawn Int32,
  processes Int32,
  exact_bytes Nullable(Int64),
  exact_objects Nullable(Int64),
  interval_bytes Int64,
  labels Map(String, String)
) engine = MergeTree
partition by toDate(ts) order by (kind, service, build_id, host, ts)
ttl toDateTime(ts) + interval 30 day
settings non_replicated_deduplication_window = 10000;

-- Hosts repeat the rows of these tables each day, so that a day is complete without those before.
create table if not exists stacks (
  day Date default today(),
  stack_id Int64,
  depth Int32,
  frame_id Int64
) engine = ReplacingMergeTree
partition by day order by (stack_id, depth, frame_id) ttl day + interval 31 day;

create table if not exists frames (
  day Date default today(),
  frame_id Int64,
  build_id LowCardinality(String),
  address Int64
) engine = ReplacingMergeTree
partition by day order by frame_id ttl day + interval 31 day;

create table if not exists symbols (
  day Date default today(),
  frame_id Int64,
  quality Int32,
  inlined Int32,
  function String,
  file String,
  line Int32
) engine = ReplacingMergeTree
partition by day order by (frame_id, quality, inlined, function, file, line) ttl day + interval 31 day;

create table if not exists mappings (
  day Date default today(),
  build_id String,
  htlhash String,
  path String
) engine = ReplacingMergeTree
partition by day order by (build_id, htlhash, path) ttl day + interval 31 day;
