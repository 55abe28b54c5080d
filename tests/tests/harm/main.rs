//! What people's programs did under a profiler: each must run to its end as it does alone.

mod bystanders;
mod dispatch;
mod killed;
mod moved;
mod patched;
