//! Where things lie in a program's memory: two processes of one program are not equally fast because of it, by up to 3 %.

use crate::scratch::Variable;

/// How that is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// By the kernel and by the program itself, anew in every process.
    Random,
    /// Alike in all processes that have equally long arguments and variables: addresses are the same, and so is the order in which tables are gone through.
    /// Only which physical pages they get may differ.
    Fixed,
}

impl Layout {
    /// What starts a program so, before its own command.
    pub(crate) fn command(self) -> &'static [&'static str] {
        match self {
            Layout::Random => &[],
            Layout::Fixed => &["setarch", "--addr-no-randomize"],
        }
    }

    /// Variables of the program.
    pub(crate) fn environment(self) -> Vec<Variable> {
        let seeds = ["PERL_HASH_SEED", "PERL_PERTURB_KEYS", "PYTHONHASHSEED"];
        match self {
            Layout::Random => Vec::new(),
            Layout::Fixed => seeds.map(|name| (name, "0".to_owned())).to_vec(),
        }
    }
}
