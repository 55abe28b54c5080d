-- Views for DuckDB, started in the folder that samplerd writes to.
create or replace view alloc as select * from read_parquet('alloc/*/*/*.parquet', hive_partitioning = true);
create or replace view coverage as select * from read_parquet('coverage/*/*/*.parquet', hive_partitioning = true);
create or replace view stacks as select * from read_parquet('stacks/*/*.parquet', hive_partitioning = true);
create or replace view frames as select * from read_parquet('frames/*/*.parquet', hive_partitioning = true);
create or replace view symbols as select * from read_parquet('symbols/*/*.parquet', hive_partitioning = true);
create or replace view mappings as select * from read_parquet('mappings/*/*.parquet', hive_partitioning = true);
-- With --no-live there is no such table.
create or replace view live as select * from read_parquet('live/*/*/*.parquet', hive_partitioning = true);
