//! Lists processes with diverted threads: their system calls go to the program itself (Syscall User
//! Dispatch) or to its tracer. A return probe would kill such processes. A kernel iterator over
//! threads lists them without stopping them.

use anyhow::Context as _;
use aya::programs::Iter;
use aya::{Btf, Ebpf};
use rustc_hash::FxHashSet;
use std::io::Read as _;

const NAME: &str = "diverted_tasks";

/// Lists process ids in samplerd's pid namespace, as of now. The kernel lists no others.
pub(super) fn list(ebpf: &mut Ebpf) -> anyhow::Result<FxHashSet<u32>> {
    let program = ebpf.program_mut(NAME);
    let program = program.with_context(|| format!("program {NAME} is not in the eBPF object"))?;
    let program: &mut Iter = program.try_into()?;
    if program.fd().is_err() {
        let btf = Btf::from_sys_fs().context("read the kernel's types")?;
        program.load("task", &btf).with_context(|| format!("load the eBPF program {NAME}"))?;
    }
    let link = program.attach().context("iterate over threads")?;
    let mut bytes = Vec::new();
    program.take_link(link)?.into_file()?.read_to_end(&mut bytes).context("list threads")?;
    let (words, _) = bytes.as_chunks();
    Ok(words.iter().map(|word| u32::from_le_bytes(*word)).collect())
}
