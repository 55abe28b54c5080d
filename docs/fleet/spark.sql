-- Views for Spark, started in the folder that samplerd writes to.
create temporary view alloc using parquet options (path 'alloc');
create temporary view coverage using parquet options (path 'coverage');
create temporary view stacks using parquet options (path 'stacks');
create temporary view frames using parquet options (path 'frames');
create temporary view symbols using parquet options (path 'symbols');
create temporary view mappings using parquet options (path 'mappings');
-- With --no-live there is no such table.
create temporary view live using parquet options (path 'live');
