//! Notes about missing names, and about their requests to debuginfod.

use super::UnnamedCode;
use crate::units::grouped;
use std::fmt::{self, Formatter};

/// Maximum number of listed files. Further files are only counted.
const MAX_LISTED: usize = 4;

/// A reason why names are missing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub enum Names {
    /// Number of modules whose debug files were requested and have not arrived.
    OnTheWay(usize),
    /// Number of modules whose debug files could not be fetched, and the reason for one of them.
    Failed(usize, String),
    /// Number of modules that have functions without names, and whose debug files no server has.
    NotThere(usize),
    /// Files that have functions without names, each with its build id. No debuginfod server is
    /// asked.
    NotRequested(Vec<(String, String)>),
    /// Processes whose generated code has no names.
    Generated(UnnamedCode),
}

impl fmt::Display for Names {
    fn fmt(&self, f: &mut Formatter<'_>) -> fmt::Result {
        let modules = |count: usize| match count {
            1 => "1 module".to_owned(),
            _ => format!("{} modules", grouped(count as u64)),
        };
        match self {
            Names::OnTheWay(count) => {
                let (modules, their) = (modules(*count), if *count == 1 { "its" } else { "their" });
                write!(f, "{modules} still on {their} way from debuginfod (ask again)")
            }
            Names::Failed(count, reason) => {
                let modules = modules(*count);
                write!(f, "{modules} could not be had from debuginfod, the last one: {reason}")
            }
            Names::NotThere(count) => write!(
                f,
                "{} with functions without names: no debuginfod server has their debug information",
                modules(*count)
            ),
            Names::NotRequested(files) => {
                f.write_str("functions without names: ")?;
                let listed = files.iter().take(MAX_LISTED);
                let listed: Vec<_> =
                    listed.map(|(name, id)| format!("{name} (build id {id})")).collect();
                f.write_str(&listed.join(", "))?;
                if let Some(more) = files.len().checked_sub(MAX_LISTED).filter(|more| *more > 0) {
                    write!(f, " and {}", modules(more).replace("module", "more module"))?;
                }
                f.write_str("; install their debug symbols (Debian: -dbgsym packages), or give samplerd --debuginfod URLS")
            }
            Names::Generated(of) => of.fmt(f),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modules_are_counted_and_a_few_are_listed() {
        let text = "1 module still on its way from debuginfod (ask again)";
        assert_eq!(Names::OnTheWay(1).to_string(), text);
        let failed = Names::Failed(1200, "a.example: timeout".to_owned()).to_string();
        let text =
            "1,200 modules could not be had from debuginfod, the last one: a.example: timeout";
        assert_eq!(failed, text);
        let file = |name: &str| (name.to_owned(), "ab12".to_owned());
        assert_eq!(
            Names::NotRequested(vec![file("a.so")]).to_string(),
            "functions without names: a.so (build id ab12); install their debug symbols (Debian: -dbgsym packages), or give samplerd --debuginfod URLS"
        );
        let many = Names::NotRequested(vec![file("a"); 6]).to_string();
        assert!(many.contains("a (build id ab12) and 2 more modules; install"), "{many}");
    }
}
