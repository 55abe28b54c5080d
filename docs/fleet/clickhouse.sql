-- Views for ClickHouse (clickhouse-local or chdb), started in the folder that samplerd writes to.
create view alloc as select * from file('alloc/*/*/*.parquet', 'Parquet');
create view coverage as select * from file('coverage/*/*/*.parquet', 'Parquet');
create view stacks as select * from file('stacks/*/*.parquet', 'Parquet');
create view frames as select * from file('frames/*/*.parquet', 'Parquet');
create view symbols as select * from file('symbols/*/*.parquet', 'Parquet');
create view mappings as select * from file('mappings/*/*.parquet', 'Parquet');
-- With --no-live there is no such table.
create view live as select * from file('live/*/*/*.parquet', 'Parquet');
