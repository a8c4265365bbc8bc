//! Running other programs, with errors that name the program and its output.

use std::{ffi::OsStr, path::Path, process::Command};

/// Runs a command to completion. Returns its output.
pub(crate) fn run(command: &mut Command) -> Result<String, String> {
    let name = command.get_program().to_string_lossy().into_owned();
    let output = command.output().map_err(|error| format!("{name} could not be run: {error}"))?;
    let printed = String::from_utf8_lossy(&output.stdout).into_owned();
    if output.status.success() {
        return Ok(printed);
    }
    let complaint = String::from_utf8_lossy(&output.stderr).into_owned();
    Err(format!("{name} failed with {}: {printed}{complaint}", output.status))
}

/// User that a cluster's processes run as: PostgreSQL refuses to run as root.
#[derive(Clone, Debug)]
pub(crate) enum Account {
    /// The user of this process, which is not root.
    Mine,
    Other {
        name: String,
        uid: u32,
        gid: u32,
    },
}

impl Account {
    pub(crate) fn unprivileged() -> Result<Self, String> {
        if !is_root()? {
            return Ok(Self::Mine);
        }
        for name in ["postgres", "nobody"] {
            let id = |flag: &str| -> Option<u32> {
                run(Command::new("id").args([flag, name])).ok()?.trim().parse().ok()
            };
            if let (Some(uid), Some(gid)) = (id("-u"), id("-g")) {
                return Ok(Self::Other { name: name.to_owned(), uid, gid });
            }
        }
        Err("PostgreSQL does not run as root, and there is no user postgres or nobody to run it as".into())
    }

    /// Returns a command that runs as this user.
    pub(crate) fn command(&self, program: impl AsRef<OsStr>) -> Command {
        match self {
            Self::Mine => Command::new(program),
            Self::Other { name, .. } => {
                let mut command = Command::new("runuser");
                command.args(["-u", name, "--"]).arg(program);
                command
            }
        }
    }

    /// Changes the owner of a file or directory to this user.
    pub(crate) fn own(&self, path: &Path) -> Result<(), String> {
        match self {
            Self::Mine => Ok(()),
            Self::Other { uid, gid, .. } => std::os::unix::fs::chown(path, Some(*uid), Some(*gid))
                .map_err(|error| format!("{} could not be given away: {error}", path.display())),
        }
    }
}

pub(crate) fn is_root() -> Result<bool, String> {
    Ok(run(Command::new("id").arg("-u"))?.trim() == "0")
}
