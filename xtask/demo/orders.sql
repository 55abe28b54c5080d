-- One round of a database in memory that grows: fed to sqlite3 again and again.
CREATE TABLE IF NOT EXISTS orders (id INTEGER PRIMARY KEY, customer TEXT, note BLOB);
CREATE INDEX IF NOT EXISTS by_customer ON orders (customer);
CREATE TEMP TABLE IF NOT EXISTS rounds (id INTEGER PRIMARY KEY);
INSERT INTO rounds DEFAULT VALUES;
INSERT INTO orders (customer, note)
WITH RECURSIVE number (i) AS (SELECT 1 UNION ALL SELECT i + 1 FROM number LIMIT 500)
SELECT 'customer ' || abs(random() % 5000), randomblob(400) FROM number
WHERE (SELECT count(*) FROM rounds) < 1000;
SELECT count(*) FROM (SELECT customer, group_concat(id) FROM orders
WHERE id > (SELECT max(id) FROM orders) - 5000 GROUP BY customer ORDER BY 2);
