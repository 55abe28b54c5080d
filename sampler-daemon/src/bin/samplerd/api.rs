//! Who may use the API: permissions of the Unix socket, and the token over TCP.

use anyhow::{Context as _, anyhow};
use clap::Args as Group;
use sampler_daemon::rpc::listen::{Access, Address};
use sampler_daemon::token::{Token, TokenFile};
use std::path::PathBuf;

/// Where the API's users come from.
#[derive(Clone, Debug, Group)]
pub(crate) struct Api {
    /// Permissions of the Unix socket [default: 600]: who can write to it sees everything. Only root, and the owner of a process, may change how the
    /// process is sampled
    #[arg(long, value_name = "OCTAL", value_parser = mode)]
    socket_mode: Option<u32>,

    /// Group of the Unix socket, by name or number; with it the default of --socket-mode is 660
    #[arg(long, value_name = "GROUP", value_parser = group)]
    socket_group: Option<u32>,

    /// Where the token is written without which the API answers nothing over TCP [default: /run/sampler/tcp-PORT.token]. Clients find it in
    /// $SAMPLER_TOKEN_FILE, or at the default place
    #[arg(long, value_name = "FILE")]
    token_file: Option<PathBuf>,
}

impl Api {
    /// Returns what is wrong if an option does not apply to this address.
    pub(crate) fn contradiction(&self, address: &Address) -> Option<String> {
        let is_unix = matches!(address, Address::Unix(_));
        let is_of_socket = self.socket_mode.is_some() || self.socket_group.is_some();
        match () {
            () if is_of_socket && !is_unix => Some(format!(
                "--socket-mode and --socket-group: {address} is no Unix socket (leave them out, or give --listen unix:PATH)"
            )),
            () if self.token_file.is_some() && is_unix => Some(format!(
                "--token-file: {address} needs no token (leave it out, or give --listen tcp:127.0.0.1:PORT)"
            )),
            () => None,
        }
    }

    /// Returns who can connect to the Unix socket.
    pub(crate) fn access(&self) -> Access {
        let usual = if self.socket_group.is_some() { 0o660 } else { Access::OWNER.mode };
        Access { mode: self.socket_mode.unwrap_or(usual), group: self.socket_group }
    }

    /// Makes a token for a TCP address and writes it to its file. A Unix socket needs no token.
    pub(crate) fn token(&self, address: &Address) -> anyhow::Result<Option<(Token, TokenFile)>> {
        let Address::Tcp(tcp) = address else { return Ok(None) };
        let token = Token::new().context("make a token for the API")?;
        let path = self.token_file.clone().unwrap_or_else(|| TokenFile::usual(tcp.port()));
        let file = TokenFile::write(&path, &token).map_err(|error| anyhow!(error))?;
        tracing::info!(token_file = %path.display(), "the API over TCP needs the token in this file");
        Ok(Some((token, file)))
    }
}

/// Parses permission bits in octal.
fn mode(text: &str) -> Result<u32, String> {
    match u32::from_str_radix(text, 8) {
        Ok(mode) if mode <= 0o777 => Ok(mode),
        _ => Err("give permissions in octal, as 660".into()),
    }
}

/// Parses a group: a number, or a name in `/etc/group` (group(5)).
fn group(text: &str) -> Result<u32, String> {
    if let Ok(number) = text.parse() {
        return Ok(number);
    }
    let groups = std::fs::read_to_string("/etc/group")
        .map_err(|error| format!("read /etc/group: {error}"))?;
    let number = groups.lines().find_map(|line| {
        let mut fields = line.split(':');
        if fields.next() == Some(text) { fields.nth(1)?.parse().ok() } else { None }
    });
    number.ok_or_else(|| format!("no group {text:?} in /etc/group (give its number)"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn modes_and_groups_are_parsed_or_refused() {
        assert_eq!(mode("660"), Ok(0o660));
        assert!(["", "8", "1000", "-1", "rw"].iter().all(|text| mode(text).is_err()));
        assert_eq!(group("root"), Ok(0));
        assert_eq!(group("1234"), Ok(1234));
        assert!(group("no-such-group").is_err());
    }
}
