//! Variables of a process's environment, as the process was started with.
//!
//! Reference: proc(5), "/proc/PID/environ". The process may have changed the text since.

use std::fs::File;
use std::io::Read as _;

/// Most bytes of an environment that are read, since an environment can have any size.
const MAX_BYTES: u64 = 1 << 20;

/// The value of a variable; `None` if it is not set, or if the process is gone.
pub(in crate::inspect) fn variable(pid: u32, name: &str) -> Option<Vec<u8>> {
    let mut environment = Vec::new();
    if let Ok(file) = File::open(format!("/proc/{pid}/environ")) {
        // The bytes that were read before an error still count.
        let _ = file.take(MAX_BYTES).read_to_end(&mut environment);
    }
    find(&environment, name)
}

fn find(environment: &[u8], name: &str) -> Option<Vec<u8>> {
    let value = |variable: &[u8]| {
        let rest = variable.strip_prefix(name.as_bytes())?;
        rest.strip_prefix(b"=").map(<[u8]>::to_vec)
    };
    environment.split(|byte| *byte == 0).find_map(value)
}

/// Longest name of a service, bytes.
const MAX_SERVICE_BYTES: usize = 256;

/// The name that a process was given for telemetry: `OTEL_SERVICE_NAME`. Empty if there is none, or
/// if it is no line of text.
pub fn service_name(pid: u32) -> String {
    let name = variable(pid, "OTEL_SERVICE_NAME").and_then(|name| String::from_utf8(name).ok());
    name.filter(|name| is_service(name)).unwrap_or_default()
}

fn is_service(name: &str) -> bool {
    name.len() <= MAX_SERVICE_BYTES && !name.chars().any(char::is_control)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_variable_is_found_by_its_whole_name() {
        let environment = b"XA=0\0A=1=2\0A=3\0B=\0C";
        let of = |name| find(environment, name);
        assert_eq!(of("A"), Some(b"1=2".to_vec()));
        assert_eq!(of("B"), Some(Vec::new()));
        assert_eq!((of("C"), of("D")), (None, None));
        assert_eq!(variable(std::process::id(), "sampler no such name"), None);
    }

    #[test]
    fn a_service_is_one_short_line() {
        assert!(is_service("shop/cart ä"));
        assert!(!is_service("a\nb") && !is_service(&"x".repeat(257)));
    }
}
