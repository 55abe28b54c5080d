//! Who may use the API: permissions of the Unix socket, the token over TCP, and certificates over
//! TLS.

use anyhow::{Context as _, anyhow};
use clap::Args as Group;
use sampler_daemon::rpc::listen::{Access, Address};
use sampler_daemon::rpc::serve::Credentials;
use sampler_daemon::secret_file::{read_public, read_secret};
use sampler_daemon::token::{Token, TokenFile};
use std::path::{Path, PathBuf};

/// Options that say who may use the API.
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

    /// Certificate of samplerd for --listen tls:ADDRESS:PORT, in PEM
    #[arg(long, value_name = "FILE")]
    tls_cert: Option<PathBuf>,

    /// Private key of --tls-cert, in PEM
    #[arg(long, value_name = "FILE")]
    tls_key: Option<PathBuf>,

    /// Certificates, in PEM, of the authorities of clients: a client with a certificate of one of them sees everything, and may change how processes
    /// are sampled
    #[arg(long, value_name = "FILE")]
    tls_client_ca: Option<PathBuf>,
}

impl Api {
    /// Returns what is wrong if an option does not apply to this address.
    pub(crate) fn contradiction(&self, address: &Address) -> Option<String> {
        let is_unix = matches!(address, Address::Unix(_));
        let files = self.tls_files();
        let tls_given = files.iter().filter(|(_, file)| file.is_some()).count();
        let is_socket_option_given = self.socket_mode.is_some() || self.socket_group.is_some();
        match () {
            () if is_socket_option_given && !is_unix => Some(format!(
                "--socket-mode and --socket-group: {address} is no Unix socket (leave them out, or give --listen unix:PATH)"
            )),
            () if self.token_file.is_some() && !matches!(address, Address::Tcp(_)) => {
                Some(format!(
                    "--token-file: {address} needs no token (leave it out, or give --listen tcp:127.0.0.1:PORT)"
                ))
            }
            () if matches!(address, Address::Tls(_)) && tls_given < files.len() => {
                Some(format!("{address}: give --tls-cert, --tls-key and --tls-client-ca"))
            }
            () if !matches!(address, Address::Tls(_)) && tls_given > 0 => Some(format!(
                "--tls-cert, --tls-key and --tls-client-ca: {address} has no TLS (leave them out, or give --listen tls:ADDRESS:PORT)"
            )),
            () => None,
        }
    }

    /// Returns who can connect to the Unix socket.
    pub(crate) fn access(&self) -> Access {
        let default = if self.socket_group.is_some() { 0o660 } else { Access::OWNER.mode };
        Access { mode: self.socket_mode.unwrap_or(default), group: self.socket_group }
    }

    /// What an address requires of clients. For a TCP address, a token is made and written to its
    /// file, which is removed on drop.
    pub(crate) fn credentials(
        &self,
        address: &Address,
    ) -> anyhow::Result<(Credentials, Option<TokenFile>)> {
        let tcp = match address {
            Address::Unix(_) => return Ok((Credentials::None, None)),
            Address::Tls(_) => return Ok((self.certificates()?, None)),
            Address::Tcp(tcp) => tcp,
        };
        let token = Token::new().context("make a token for the API")?;
        let path = self.token_file.clone().unwrap_or_else(|| TokenFile::usual(tcp.port()));
        let file = TokenFile::write(&path, &token).map_err(|error| anyhow!(error))?;
        tracing::info!(token_file = %path.display(), "the API over TCP needs the token in this file");
        Ok((Credentials::Token(token), Some(file)))
    }

    /// The options of TLS, each with its file.
    fn tls_files(&self) -> [(&'static str, Option<&PathBuf>); 3] {
        [
            ("--tls-cert", self.tls_cert.as_ref()),
            ("--tls-key", self.tls_key.as_ref()),
            ("--tls-client-ca", self.tls_client_ca.as_ref()),
        ]
    }

    /// Reads the certificates and the key from the files of the TLS options.
    fn certificates(&self) -> anyhow::Result<Credentials> {
        type Read = fn(&Path, &str) -> Result<String, String>;
        let read = |read: Read, (option, file): (&str, Option<&PathBuf>)| {
            let path = file.with_context(|| format!("{option} is missing"))?;
            read(path, option).map_err(|error| anyhow!(error))
        };
        let [certificate, key, authorities] = self.tls_files();
        let certificate = read(read_public, certificate)?;
        let key = read(read_secret, key)?;
        let authorities = read(read_public, authorities)?;
        Credentials::certificates(&certificate, &key, &authorities).map_err(|error| {
            anyhow!("--tls-cert, --tls-key and --tls-client-ca: {error} (give PEM files, and the key of the certificate)")
        })
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
