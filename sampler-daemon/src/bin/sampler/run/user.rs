//! The user of the program: under sudo, the user who called sudo.

use super::args::{RunVerb, StartVerb};
use anyhow::{Context as _, Result, anyhow, ensure};
use rustix::process::{Gid, Uid};
use rustix::thread::{set_thread_groups, set_thread_res_gid, set_thread_res_uid};
use std::process::{Command, Stdio};

/// A user with all groups.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct User {
    pub(super) uid: u32,
    pub(super) gid: u32,
    pub(super) groups: Vec<u32>,
}

impl User {
    /// Returns the user that `verb` and the environment name; `None`: the present user.
    pub(super) fn of(verb: &RunVerb) -> Result<Option<User>> {
        if let Some(name) = &verb.user {
            let user = User::named(name);
            let user = user.ok_or_else(|| anyhow!("--user {name}: no such user (see: id {name})"));
            return user.map(Some);
        }
        let Some(uid) = variable("SUDO_UID")?.filter(|uid| *uid != 0 && !verb.as_root) else {
            return Ok(None);
        };
        let gid =
            variable("SUDO_GID")?.context("SUDO_UID is set and SUDO_GID is not (give --user)")?;
        // A user id without an account has only its primary group.
        let named = User::named(&uid.to_string()).filter(|user| user.uid == uid);
        let groups = named.map_or_else(|| vec![gid], |user| user.groups);
        Ok(Some(User { uid, gid, groups }))
    }

    /// Looks a user up in the system's databases, which may be more than files (nsswitch.conf(5)).
    fn named(name: &str) -> Option<User> {
        let ids = |flag: &str| {
            let mut id = Command::new("id");
            let said = id.args([flag, "--", name]).stdin(Stdio::null()).stderr(Stdio::null());
            let said = said.output().ok().filter(|said| said.status.success())?;
            let said = String::from_utf8(said.stdout).ok()?;
            said.split_ascii_whitespace().map(|id| id.parse().ok()).collect::<Option<Vec<u32>>>()
        };
        let [uid, gid] = ["-u", "-g"].map(|flag| ids(flag)?.first().copied());
        Some(User { uid: uid?, gid: gid?, groups: ids("-G")? })
    }

    /// Returns the user as arguments of the copy.
    pub(super) fn arguments(&self) -> Vec<String> {
        let groups: Vec<String> = self.groups.iter().map(u32::to_string).collect();
        let mut arguments = vec![format!("--uid={}", self.uid), format!("--gid={}", self.gid)];
        if !groups.is_empty() {
            arguments.push(format!("--groups={}", groups.join(",")));
        }
        arguments
    }
}

fn variable(name: &str) -> Result<Option<u32>> {
    let Some(text) = std::env::var_os(name) else { return Ok(None) };
    let id = text.to_str().and_then(|text| text.parse().ok());
    let id =
        id.with_context(|| format!("{name} is {text:?}: not a number (give --user or --as-root)"))?;
    Ok(Some(id))
}

/// Becomes the user of the arguments, for good. The process must have only one thread.
pub(super) fn take(verb: &StartVerb) -> Result<()> {
    let (Some(uid), Some(gid)) = (verb.uid, verb.gid) else { return Ok(()) };
    ensure!(uid != u32::MAX && gid != u32::MAX, "user {uid}:{gid} is none");
    let (uid, gid) = (Uid::from_raw(uid), Gid::from_raw(gid));
    let groups: Vec<Gid> = verb.groups.iter().map(|group| Gid::from_raw(*group)).collect();
    set_thread_groups(&groups).context("take the user's groups")?;
    set_thread_res_gid(gid, gid, gid).context("take the user's group")?;
    set_thread_res_uid(uid, uid, uid).context("take the user's id")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn users_are_looked_up_by_name_and_number() {
        let root = User { uid: 0, gid: 0, groups: vec![0] };
        for name in ["root", "0"] {
            let found = User::named(name).unwrap();
            assert_eq!((found.uid, found.gid), (root.uid, root.gid));
        }
        assert_eq!(User::named("no-such-user-anywhere"), None);
        assert_eq!(root.arguments(), ["--uid=0", "--gid=0", "--groups=0"]);
    }
}
