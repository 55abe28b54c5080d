//! A workload in Rust with mimalloc linked in, as in many programs: see `heap.rs`.

#[path = "../rust-jemalloc/heap.rs"]
mod heap;

#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

fn main() -> std::io::Result<()> {
    heap::run()
}
