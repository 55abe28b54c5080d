//! A workload in Rust with jemalloc linked in, as in many programs: see `heap.rs`.

mod heap;

#[global_allocator]
static ALLOCATOR: tikv_jemallocator::Jemalloc = tikv_jemallocator::Jemalloc;

fn main() -> std::io::Result<()> {
    heap::run()
}
