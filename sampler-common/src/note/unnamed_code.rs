//! Notes about generated code without names, and the command that gives it names.

use std::fmt::{self, Formatter};

/// Maximum number of listed processes. Further processes are only counted.
const MAX_LISTED: usize = 3;

/// A program that generates code at run time.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Runtime {
    /// A JVM.
    Java,
    /// A JVM without the command that writes a perf map: older than Java 17.
    OldJava,
    /// Node.js.
    Node,
    /// The .NET runtime.
    DotNet,
    /// Erlang's and Elixir's virtual machine.
    Erlang,
    /// PHP.
    Php,
    /// Ruby.
    Ruby,
    /// LuaJIT.
    LuaJit,
    /// A program that is not known.
    Other,
}

impl Runtime {
    /// The runtime whose code is in a file of this name (without folders). `Other` if the file is
    /// of no known runtime.
    pub fn of_file(name: &str) -> Runtime {
        let begins = |with: &[&str]| with.iter().any(|with| name.starts_with(with));
        match name {
            "libjvm.so" | "java" => Runtime::Java,
            "libcoreclr.so" | "dotnet" => Runtime::DotNet,
            "node" | "nodejs" => Runtime::Node,
            _ if begins(&["libnode.so"]) => Runtime::Node,
            _ if begins(&["beam."]) => Runtime::Erlang,
            _ if begins(&["php", "libphp", "opcache.so"]) => Runtime::Php,
            _ if begins(&["ruby", "libruby"]) => Runtime::Ruby,
            _ if begins(&["luajit", "libluajit"]) => Runtime::LuaJit,
            _ => Runtime::Other,
        }
    }
}

/// Processes of one runtime whose generated code has no names.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct UnnamedCode {
    /// The runtime.
    pub runtime: Runtime,
    /// Process ids, at least one.
    pub pids: Vec<u32>,
    /// The first process's id in its own pid namespace, if that is another one.
    pub inner_pid: Option<u32>,
    /// Whether the processes still run.
    pub are_running: bool,
}

impl fmt::Display for UnnamedCode {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let listed: Vec<String> = self.pids.iter().take(MAX_LISTED).map(u32::to_string).collect();
        let more = if self.pids.len() > MAX_LISTED { ", …" } else { "" };
        match self.pids.len() {
            1 => write!(f, "pid {}: ", listed[0])?,
            count => write!(f, "{count} processes ({}{more}): ", listed.join(", "))?,
        }
        let code = match self.runtime {
            Runtime::Java | Runtime::OldJava => "Java code has no names",
            Runtime::Node => "JavaScript code has no names",
            _ => "generated code has no names",
        };
        write!(f, "{code}: ")?;
        match self.runtime {
            Runtime::Java => self.java(f),
            Runtime::OldJava => {
                f.write_str("this JVM cannot write a perf map (Java 17 and later can)")
            }
            Runtime::Node => {
                f.write_str("start node with --perf-basic-prof (or NODE_OPTIONS=--perf-basic-prof)")
            }
            Runtime::DotNet => f.write_str("start the program with DOTNET_PerfMapEnabled=1"),
            Runtime::Erlang => {
                f.write_str("start erl with +JPperf true (ERL_FLAGS='+JPperf true')")
            }
            Runtime::Php => f.write_str("start PHP with -d opcache.jit_debug=16"),
            Runtime::Ruby => f.write_str("start ruby with --yjit-perf (Ruby 3.3 or later)"),
            Runtime::LuaJit => f.write_str("LuaJIT writes no perf map"),
            Runtime::Other => f.write_str("it has no perf map (/tmp/perf-PID.map)"),
        }
    }
}

impl UnnamedCode {
    fn java(&self, f: &mut Formatter<'_>) -> fmt::Result {
        match &*self.pids {
            _ if !self.are_running => {
                f.write_str("run jcmd PID Compiler.perfmap while it runs (Java 17 or later)")
            }
            [pid] => {
                write!(f, "run jcmd {pid} Compiler.perfmap")?;
                match self.inner_pid {
                    Some(inner) => write!(f, " (in its container: jcmd {inner} Compiler.perfmap)"),
                    None => Ok(()),
                }
            }
            _ => f.write_str("run jcmd PID Compiler.perfmap for each"),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(runtime: Runtime, pids: &[u32], inner_pid: Option<u32>, are_running: bool) -> String {
        UnnamedCode { runtime, pids: pids.to_vec(), inner_pid, are_running }.to_string()
    }

    #[test]
    fn the_command_for_a_jvm_has_its_pid() {
        let java = |pids: &[u32], inner, running| text(Runtime::Java, pids, inner, running);
        let begin = "pid 41: Java code has no names: run jcmd 41 Compiler.perfmap";
        assert_eq!(java(&[41], None, true), begin);
        let inside = format!("{begin} (in its container: jcmd 1 Compiler.perfmap)");
        assert_eq!(java(&[41], Some(1), true), inside);
        assert!(java(&[41], None, false).ends_with("while it runs (Java 17 or later)"));
        let four = java(&[2, 3, 4, 5], Some(1), true);
        assert!(four.starts_with("4 processes (2, 3, 4, …): Java"), "{four}");
        assert!(four.ends_with(": run jcmd PID Compiler.perfmap for each"), "{four}");
    }

    #[test]
    fn each_runtime_is_recognized_by_a_file() {
        let files = [
            ("libjvm.so", Runtime::Java),
            ("node", Runtime::Node),
            ("libnode.so.108", Runtime::Node),
            ("libcoreclr.so", Runtime::DotNet),
            ("beam.smp", Runtime::Erlang),
            ("php8.2", Runtime::Php),
            ("libruby-3.1.so.3.1.2", Runtime::Ruby),
            ("libluajit-5.1.so.2.1.0", Runtime::LuaJit),
            ("libm.so.6", Runtime::Other),
        ];
        for (name, runtime) in files {
            assert_eq!(Runtime::of_file(name), runtime, "{name}");
            let text = text(runtime, &[7], None, true);
            assert!(text.contains(" no names: ") && text.is_ascii(), "{text}");
        }
    }
}
