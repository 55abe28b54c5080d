//! A process id on a command line.

/// Parses a process id.
///
/// # Errors
/// One line with the remedy. Several ids in one argument, as in `--pid "$(pidof nginx)"`, have a
/// message of their own.
pub fn parse_pid(text: &str) -> Result<u32, String> {
    let words: Vec<&str> = text.split_whitespace().collect();
    let pids: Option<Vec<u32>> =
        words.iter().map(|word| word.parse().ok().filter(|pid| *pid > 0)).collect();
    match (words.as_slice(), pids.as_deref()) {
        ([], _) => Err("no process id: does the program run? (see: pgrep -a NAME)".to_owned()),
        (_, Some([pid])) => Ok(*pid),
        (_, Some([first, second, ..])) => Err(format!(
            "{} process ids in one argument (give each: --pid {first} --pid {second})",
            words.len()
        )),
        _ => Err("no process id (try one that pgrep -a NAME shows)".to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::parse_pid;

    #[test]
    fn several_pids_in_one_argument_are_explained() {
        assert_eq!(parse_pid("4121"), Ok(4121));
        assert_eq!(parse_pid(" 4121\n"), Ok(4121));
        let several = "3 process ids in one argument (give each: --pid 12 --pid 34)";
        assert_eq!(parse_pid("12 34\n56").unwrap_err(), several);
        assert!(parse_pid("").unwrap_err().contains("does the program run?"));
        for wrong in ["0", "-1", "x", "12,34", "12 x", "4294967296"] {
            assert!(parse_pid(wrong).unwrap_err().contains("no process id"), "{wrong}");
        }
    }
}
