//! Layout of a program's memory. Because of the layout, two processes of one program differ in
//! speed by up to 3 %.

use crate::scratch::Variable;

/// How the layout is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Layout {
    /// The kernel and the program choose a layout at random in every process.
    Random,
    /// All processes with equally long arguments and variables have one layout. Addresses are
    /// equal, and so is the order in which tables are iterated. Only the physical pages may differ.
    Fixed,
}

impl Layout {
    /// Command that precedes the program's own, to start the program with this layout.
    pub(crate) fn command(self) -> &'static [&'static str] {
        match self {
            Layout::Random => &[],
            Layout::Fixed => &["setarch", "--addr-no-randomize"],
        }
    }

    /// Environment variables that the program needs for this layout.
    pub(crate) fn environment(self) -> Vec<Variable> {
        let seeds = ["PERL_HASH_SEED", "PERL_PERTURB_KEYS", "PYTHONHASHSEED"];
        match self {
            Layout::Random => Vec::new(),
            Layout::Fixed => seeds.map(|name| (name, "0".to_owned())).to_vec(),
        }
    }
}
