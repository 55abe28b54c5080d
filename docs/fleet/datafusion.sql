-- Tables for DataFusion, started in the folder that samplerd writes to.
create external table alloc stored as parquet location 'alloc/';
create external table coverage stored as parquet location 'coverage/';
create external table stacks stored as parquet location 'stacks/';
create external table frames stored as parquet location 'frames/';
create external table symbols stored as parquet location 'symbols/';
create external table mappings stored as parquet location 'mappings/';
-- With --no-live there is no such table.
create external table live stored as parquet location 'live/';
